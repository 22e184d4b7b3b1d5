// SPDX-License-Identifier: Apache-2.0
//
// The clock behind VirtualTime: its offset, the waits of all threads, and the keeper.
#pragma once

#include <pthread.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <limits>
#include <map>
#include <mutex>
#include <optional>
#include <thread>

namespace tutti::test::virtual_time {

// Real nanoseconds of CLOCK_MONOTONIC.
int64_t real_now();

class Clock {
 public:
  static constexpr int64_t no_deadline = std::numeric_limits<int64_t>::max();

  static Clock& process();

  void start();
  void stop();
  // False: there was no VirtualTime yet, and time is real.
  bool in_use() const { return used_.load(std::memory_order_acquire); }
  int64_t offset() const { return offset_.load(std::memory_order_acquire); }
  int64_t now() const { return real_now() + offset(); }
  // The calling thread has found what it looked for, without a wait.
  void note_event();

 private:
  friend class Wait;

  // What a thread does, as it says itself. Guarded by the mutex.
  struct Thread {
    uint64_t begun = 0;  // waits
    uint64_t events = 0;
    bool waits = false;
    bool naps = false;  // its wait, or its last one, is a nap
    bool woken = false;
    int64_t deadline = no_deadline;
    int64_t offset = 0;  // when the wait began
    pthread_cond_t* condition = nullptr;
  };
  // What the keeper has seen of a thread.
  struct Seen {
    uint64_t begun = 0, events = 0, switches = 0;
    int64_t asleep_since = 0;  // real
    uint64_t begun_at_step = 0;
    bool known = false;
  };
  // What the kernel says of a thread.
  struct Task {
    bool asleep = false;
    uint64_t switches = 0;
  };
  enum class Idle { no, asleep, polls };

  void keep();
  static std::optional<std::map<pid_t, Task>> tasks();
  bool all_wait(const std::map<pid_t, Task>& tasks, bool& any_polls);
  Idle judge(const Thread& thread, const Task& task, Seen& seen);
  void step(bool any_polls);
  void wake_due();

  std::atomic<bool> used_{false}, runs_{false};
  std::atomic<int64_t> offset_{0};
  std::mutex mutex_;
  std::map<pid_t, Thread> threads_;
  std::map<pid_t, Seen> seen_;  // the keeper's own
  int64_t last_event_ = 0;      // virtual
  std::thread keeper_;
};

// A wait of the calling thread, from before it begins to after its end. Without a VirtualTime nobody is told of it.
class Wait {
 public:
  // `deadline`: virtual. `condition`: what wakes it, if a signal does not.
  explicit Wait(int64_t deadline, pthread_cond_t* condition = nullptr);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  int64_t left() const;
  // The deadline on the real clock, as of the beginning.
  int64_t real_deadline() const { return deadline_ - offset_; }
  // The wait ended, and not by its timeout.
  void ends_by_event() { event_ = true; }
  // The clock has ended it, or what it waits in, at its deadline.
  bool woken() const;

 private:
  const int64_t deadline_;
  const bool told_;
  int64_t offset_;
  bool event_ = false;
};

}  // namespace tutti::test::virtual_time
