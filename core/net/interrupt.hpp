// SPDX-License-Identifier: Apache-2.0
//
// How the caller of a call that waits for other ranks ends it early: by a function that the waiting thread asks
// (tutti_set_interrupt). Each thread has its own.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>

#include "base/deadline.hpp"

struct pollfd;

namespace tutti::core {

class Interrupt {
 public:
  using Ask = int32_t (*)(void* self);

  // For the calling thread; nullptr: nobody is asked.
  static void set(Ask ask, void* self) noexcept;
  // Asks, at most once in `pause`. True: the wait is to end. Not with a lock held that a call of the caller's may want:
  // the function may run the application's code.
  static bool is_wanted();
  // The same. Throws Failure(TUTTI_ABORTED).
  static void check();
  // Is this thread in such a question?
  static bool is_asking() noexcept;
  // How many of this thread's questions have ended a wait.
  static uint64_t count() noexcept;
  // For errors; goes on after "rank 3 ".
  static constexpr const char* reason = "was interrupted by its caller";

  // Waits that ask. wait_until returns at the latest after `pause`, so it belongs in a loop; `lock` is not held while
  // it asks. poll returns what poll(2) does, and goes on after signals. Both throw like check().
  static void wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                         Deadline::Clock::time_point end);
  static int poll(pollfd& waiting, int limit_ms);

 private:
  static constexpr std::chrono::milliseconds pause{100};
};

}  // namespace tutti::core
