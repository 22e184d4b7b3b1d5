// SPDX-License-Identifier: Apache-2.0
//
// The clocks that the core measures and waits by.
#pragma once

#include <cstdint>

namespace tutti::core {

// Tells the processor that this thread spins.
inline void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// Cheap time stamps for statistics: CPU ticks where there are any.
uint64_t ticks();
// Converts a difference of ticks.
uint64_t ticks_to_ns(uint64_t difference);
// A monotonic clock in nanoseconds.
uint64_t clock_ns();
// So long from now; UINT64_MAX, which is never, where that is beyond the clock.
inline uint64_t deadline_after(uint64_t timeout_ns) {
  const uint64_t now = clock_ns();
  return timeout_ns < UINT64_MAX - now ? now + timeout_ns : UINT64_MAX;
}

}  // namespace tutti::core
