// SPDX-License-Identifier: Apache-2.0
//
// Work of the application's own while a thread waits (tutti_set_idle). Each thread has its own.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>

namespace tutti::core {

class Idle {
 public:
  // For the calling thread; nullptr: none.
  static void set(tutti_idle_function work, void* context) noexcept;
  // Does it, unless this thread is at it. In a wait, with the engine held.
  static void run() noexcept;
  // So long may a thread sleep that has work.
  static uint64_t limit(uint64_t sleep_ns) noexcept;
};

}  // namespace tutti::core
