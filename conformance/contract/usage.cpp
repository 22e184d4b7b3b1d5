// SPDX-License-Identifier: Apache-2.0
#include "usage.hpp"

#include <dirent.h>
#include <malloc.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "broken.hpp"
#include "guarded_memory.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;  // their allocators keep freed memory and their threads come and go
#else
constexpr bool sanitized = false;
#endif

namespace tutti::conformance::contract {
namespace {

uint64_t entries(const char* folder) {
  DIR* dir = opendir(folder);
  uint64_t n = 0;
  while (dir && readdir(dir)) ++n;
  if (dir) closedir(dir);
  return n;
}

// The target of the open descriptor with the highest number: "/dev/null", "socket:[4711]", "anon_inode:[eventfd]".
std::string last_descriptor() {
  int last = -1;
  std::string what;
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd", ignored)) {
    const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
    const int fd = std::stoi(entry.path().filename().string());
    if (fd > last && !target.ends_with("/fd")) last = fd, what = target;  // not the folder that is being read
  }
  return what;
}

struct Usage {
  uint64_t descriptors, threads, mapped, heap;
};

Usage usage() {
  drop_kept_memory();
  Usage u{entries("/proc/self/fd"), entries("/proc/self/task"), 0, 0};
  std::ifstream("/proc/self/statm") >> u.mapped;
  u.mapped *= 4096;
  const struct mallinfo2 heap = mallinfo2();
  u.heap = heap.uordblks + heap.hblkhd;
  return u;
}

}  // namespace

void require_no_growth(const char* clause, const char* what, uint32_t warm_up, uint32_t lives,
                       const std::function<void(uint32_t)>& live) {
  live(warm_up);
  const Usage before = usage();
  live(lives);
  Usage after = usage();
  for (int wait = 0; wait < 40 && after.threads > before.threads;
       ++wait) {  // a thread that was joined may still be seen
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    after = usage();
  }
  require(after.descriptors <= before.descriptors, clause,
          "after {} times {} {} descriptors are open, {} were before: {:.1f} each time; the last of them is {}", lives,
          what, after.descriptors, before.descriptors, double(after.descriptors - before.descriptors) / lives,
          last_descriptor());
  if (sanitized) return;
  require(after.threads <= before.threads, clause, "after {} times {} {} threads run, {} did before", lives, what,
          after.threads, before.threads);
  // The suite's own memory of past calls and the allocator's rounding are well below this.
  const uint64_t slack = 64 * 1024 + lives * 8;
  require(after.heap <= before.heap + slack, clause,
          "after {} times {} {} bytes of heap are in use, {} were before: {:.0f} each time", lives, what, after.heap,
          before.heap, double(after.heap - before.heap) / lives);
  const uint64_t mapped_slack = (uint64_t{8} << 20) + lives * 512;
  require(after.mapped <= before.mapped + mapped_slack, clause,
          "after {} times {} {} bytes are mapped, {} were before: {:.0f} each time", lives, what, after.mapped,
          before.mapped, double(after.mapped - before.mapped) / lives);
}

}  // namespace tutti::conformance::contract
