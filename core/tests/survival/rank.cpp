// SPDX-License-Identifier: Apache-2.0
//
// A rank of a trial. It tells the driver by lines on standard output:
//   error MS TEXT     the error that ended its work, MS milliseconds after the fault
//   defect TEXT       something that must not be
//   shrunk N in K MS  the new communicator has N ranks and its all_reduce was right, MS milliseconds after the last
//   fault;
//                     K shrinks led to it
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "trial.hpp"

namespace survival {
namespace {

constexpr uint64_t kConnectNs = 6'000'000'000, kTimeoutNs = 2'000'000'000;
// Large enough that a kill some milliseconds later meets it on its way.
constexpr size_t kElements = 200'000;
constexpr auto kIdle = std::chrono::milliseconds(400);

uint64_t now_ns() {
  timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return static_cast<uint64_t>(t.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(t.tv_nsec);
}

void say(const char* what, const std::string& text) {
  std::string line = std::string(what) + " " + text;
  for (char& c : line)
    if (c == '\n') c = ' ';
  std::printf("%s\n", line.c_str());
  std::fflush(stdout);
}

class Rank {
 public:
  Rank(const Trial& trial, uint32_t rank, std::string folder) : trial_(trial), rank_(rank), folder_(std::move(folder)) {
    const int fd = open((folder_ + "/clock").c_str(), O_RDWR);
    void* page = fd < 0 ? MAP_FAILED : mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (page == MAP_FAILED) std::abort();
    fault_at_ = static_cast<std::atomic<uint64_t>*>(page);
    second_at_ = fault_at_ + 1;
  }

  int run() {
    follow();
    try {
      arm(Moment::creation);
      tutti::Communicator world(config());
      const bool over = work(world);
      if (!over && trial_.moment == Moment::destroy) {
        arm(Moment::destroy);
        tutti_comm* handle = world.release();
        if (tutti_comm_destroy(handle) < 0) say_error(tutti_comm_error(handle));
        return 0;
      }
      if (!over) {
        // The fault came too late for all that was to meet it.
        if (rank_ == trial_.victim || rank_ == trial_.second) pause();
        say("defect", "all operations ended well, though a rank was lost");
        return 1;
      }
      go_on(world);
    } catch (const tutti::Error& error) {
      say_error(error.what());
    }
    return 0;
  }

 private:
  tutti_comm_config config() const {
    tutti_comm_config config{};
    config.struct_size = sizeof config;
    config.connect_timeout_ns = kConnectNs;
    config.timeout_ns = kTimeoutNs;
    return config;
  }

  // From here on the victim is to meet its fate.
  void arm(Moment moment) const {
    if (moment != trial_.moment || rank_ != trial_.victim) return;
    std::thread([this] {
      std::this_thread::sleep_for(std::chrono::microseconds(trial_.delay_us));
      fault_at_->store(now_ns());
      kill(getpid(), trial_.fault == Fault::stop ? SIGSTOP : SIGKILL);
    }).detach();
  }

  // In milliseconds; -1.0: not yet.
  static std::string since(uint64_t at) {
    char ms[32];
    std::snprintf(ms, sizeof ms, "%.1f", at ? static_cast<double>(now_ns() - at) * 1e-6 : -1.0);
    return ms;
  }

  // The second victim dies after the first.
  void follow() const {
    if (rank_ != trial_.second) return;
    std::thread([this] {
      while (!fault_at_->load()) std::this_thread::sleep_for(std::chrono::microseconds(50));
      std::this_thread::sleep_for(std::chrono::microseconds(trial_.gap_us));
      second_at_->store(now_ns());
      kill(getpid(), SIGKILL);
    }).detach();
  }

  void say_error(const std::string& text) const { say("error", since(fault_at_->load()) + " " + text); }

  // One all_reduce whose result is checked: exact, and different for each element.
  void add_up(const tutti::Communicator& comm, int64_t round, const std::vector<int64_t>& members) const {
    std::vector<int64_t> data(kElements), expected(kElements);
    for (size_t i = 0; i < kElements; ++i) {
      const auto at = static_cast<int64_t>(i);
      data[i] = (rank_ + 1) * 1'000'003 + at * 7 + round;
      for (const int64_t member : members) expected[i] += (member + 1) * 1'000'003 + at * 7 + round;
    }
    comm.all_reduce<int64_t>(data, data, tutti::Op::sum);
    if (data != expected) say("defect", "wrong answer in round " + std::to_string(round));
  }

  // True once an error has ended it.
  bool work(const tutti::Communicator& world) const try {
    std::vector<int64_t> everybody;
    for (uint32_t r = 0; r < trial_.nranks; ++r) everybody.push_back(r);
    arm(Moment::first_call);
    add_up(world, 0, everybody);
    if (trial_.moment == Moment::first_call || trial_.moment == Moment::creation) {
      // The victim has outlived the moment by a little: it dies in the next calls.
      for (int64_t round = 1; round < 400; ++round) add_up(world, round, everybody);
      return false;
    }
    if (trial_.moment == Moment::idle) {
      arm(Moment::idle);
      const uint64_t until = now_ns() + static_cast<uint64_t>(std::chrono::nanoseconds(kIdle).count());
      while (now_ns() < until) {
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        if (world.async_error() == TUTTI_OK) continue;
        // Known while this rank was busy elsewhere; the next call has the text.
        break;
      }
      add_up(world, 1, everybody);
      return false;
    }
    if (trial_.moment == Moment::destroy) return false;
    arm(Moment::mid_operation);
    for (int64_t round = 1; round < 2000; ++round) add_up(world, round, everybody);
    return false;
  } catch (const tutti::Error& error) {
    say_error(error.what());
    if (world.error_text() != error.what())
      say("defect", "tutti_comm_error is \"" + world.error_text() + "\", the error was \"" + error.what() + "\"");
    return true;
  }

  // The survivors make a new communicator and use it. A second death may come after that, and then they do it again.
  void go_on(const tutti::Communicator& world) const {
    const int most = trial_.second == UINT32_MAX ? 1 : 2;
    std::optional<tutti::Communicator> next;
    for (int shrinks = 1; shrinks <= most; ++shrinks) {
      try {
        tutti::Communicator made = (next ? *next : world).shrink();
        next.emplace(std::move(made));
      } catch (const tutti::Error& error) {
        return say("defect", std::string("shrinking: ") + error.what());
      }
      try {
        use(*next);
        return say("shrunk", std::to_string(next->nranks()) + " in " + std::to_string(shrinks) + " " +
                                 since(std::max(fault_at_->load(), second_at_->load())));
      } catch (const tutti::Error& error) {
        const std::string text = error.what();
        if (shrinks == most || error.status() != TUTTI_PEER_FAILED) say("defect", "after shrinking: " + text);
      }
    }
  }

  void use(const tutti::Communicator& next) const {
    std::vector<int64_t> members(next.nranks());
    next.all_gather<int64_t>(std::vector<int64_t>{rank_}, members);
    for (const int64_t member : members)
      if (member == trial_.victim) say("defect", "the lost rank is in the new communicator");
    for (int64_t round = 0; round < 3; ++round) add_up(next, round, members);
    // Until all know that the second victim has died, and was no member: it would have said no. In the other moments it
    // may end in peace before.
    const bool dies = trial_.moment != Moment::creation && trial_.moment != Moment::destroy;
    int64_t over = trial_.second == UINT32_MAX || !dies;
    while (!over) {
      over = rank_ != trial_.second && second_at_->load() != 0;
      next.all_reduce<int64_t>({&over, 1}, {&over, 1}, tutti::Op::min);
    }
  }

  const Trial& trial_;
  const int64_t rank_;
  const std::string folder_;
  std::atomic<uint64_t>*fault_at_ = nullptr, *second_at_ = nullptr;
};

}  // namespace

int run_rank(int argc, char** argv) {
  if (argc != 10) return 2;
  Trial trial;
  const std::string folder = argv[1];
  const auto rank = static_cast<uint32_t>(std::atoi(argv[2]));
  trial.fault = static_cast<Fault>(std::atoi(argv[3]));
  trial.moment = static_cast<Moment>(std::atoi(argv[4]));
  trial.nranks = static_cast<uint32_t>(std::atoi(argv[5]));
  trial.victim = static_cast<uint32_t>(std::atoi(argv[6]));
  trial.delay_us = static_cast<uint32_t>(std::atoi(argv[7]));
  trial.second = static_cast<uint32_t>(std::strtoul(argv[8], nullptr, 10));
  trial.gap_us = static_cast<uint32_t>(std::atoi(argv[9]));
  return Rank(trial, rank, folder).run();
}

}  // namespace survival
