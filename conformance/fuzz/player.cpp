// SPDX-License-Identifier: Apache-2.0
#include "fuzz/player.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <memory>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "fuzz/strand.hpp"

namespace tutti::conformance::fuzz {

Whereabouts::Whereabouts(const std::string& folder, const Program& program)
    : strands_(program.strands),
      bytes_(sizeof(std::atomic<uint64_t>) + uint64_t{program.ranks} * strands_ * sizeof(std::atomic<uint32_t>)) {
  const std::string path = folder + "/whereabouts";
  const int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  memory_ = MAP_FAILED;
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes_)) == 0)
    memory_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  if (file >= 0) close(file);
  if (memory_ == MAP_FAILED) throw std::runtime_error(fmt::format("cannot map {}: {}", path, std::strerror(errno)));
  calls_ = static_cast<std::atomic<uint64_t>*>(memory_);
  places_ = reinterpret_cast<std::atomic<uint32_t>*>(calls_ + 1);
}

Whereabouts::~Whereabouts() { munmap(memory_, bytes_); }

namespace {

// The process's descriptors, by what they lead to.
std::multiset<std::string> open_descriptors() {
  std::multiset<std::string> all;
  DIR* folder = opendir("/proc/self/fd");
  if (!folder) return all;
  while (const dirent* entry = readdir(folder)) {
    char target[200];
    const std::string path = fmt::format("/proc/self/fd/{}", entry->d_name);
    const ssize_t n = readlink(path.c_str(), target, sizeof target);
    if (n <= 0 || std::atoi(entry->d_name) == dirfd(folder)) continue;
    const std::string text(target, static_cast<size_t>(n));
    all.insert(text.substr(0, text.find('[')));  // not the number of a socket
  }
  closedir(folder);
  return all;
}

std::string more_than(const std::multiset<std::string>& before, const std::multiset<std::string>& now) {
  std::string text;
  for (auto at = now.begin(); at != now.end(); at = now.upper_bound(*at))
    if (const size_t had = before.count(*at), has = now.count(*at); has > had)
      text += fmt::format("{}{} more {}", text.empty() ? "" : ", ", has - had, *at);
  return text;
}

// Messages of a process's threads to the one that waits for them.
struct Board {
  std::mutex mutex;
  std::condition_variable news;
  size_t running = 0;
  std::string finding;
};

}  // namespace

Outcome play(const Program& program, const Place& place) {
  const std::vector<uint32_t> ranks = program.ranks_of(place.rank);
  // Threads that hang outlive this function: what they use stays.
  auto* const kept = new Program(program);
  auto* const whereabouts = new Whereabouts(place.folder, program);
  const auto board = std::make_shared<Board>();
  const std::multiset<std::string> before = open_descriptors();
  std::vector<std::thread> threads;
  board->running = ranks.size() * program.strands;
  for (const uint32_t rank : ranks)
    for (uint32_t s = 0; s < program.strands; ++s)
      threads.emplace_back([=, folder = place.folder] {
        std::string finding;
        auto* const strand = new Strand(*kept, folder, *whereabouts, rank, s);
        try {
          strand->run();
          delete strand;
        } catch (const std::exception& e) {
          finding = e.what();
        }
        const std::lock_guard lock(board->mutex);
        --board->running;
        if (board->finding.empty()) board->finding = finding;
        board->news.notify_one();
      });
  {
    std::unique_lock lock(board->mutex);
    board->news.wait(lock, [&] { return board->running == 0 || !board->finding.empty(); });
    if (!board->finding.empty()) {
      for (std::thread& thread : threads) thread.detach();
      return Outcome::fail(board->finding);
    }
  }
  for (std::thread& thread : threads) thread.join();
  const std::string leaked = more_than(before, open_descriptors());
  delete whereabouts;
  delete kept;
  return leaked.empty()
             ? Outcome::pass()
             : Outcome::fail(fmt::format("leak: the process of rank {} is left with {}", ranks.front(), leaked));
}

}  // namespace tutti::conformance::fuzz
