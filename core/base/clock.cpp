// SPDX-License-Identifier: Apache-2.0
#include "base/clock.hpp"

#include <chrono>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti::core {

uint64_t clock_ns() {
  return static_cast<uint64_t>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

#if defined(__x86_64__)
namespace {
struct Epoch {
  uint64_t ticks = __rdtsc();
  uint64_t ns = clock_ns();
};
const Epoch epoch;
}  // namespace

uint64_t ticks() { return __rdtsc(); }

uint64_t ticks_to_ns(uint64_t difference) {
  const uint64_t passed_ticks = __rdtsc() - epoch.ticks;
  const uint64_t passed_ns = clock_ns() - epoch.ns;
  if (passed_ticks == 0) return 0;
  return static_cast<uint64_t>(static_cast<double>(difference) * static_cast<double>(passed_ns) /
                               static_cast<double>(passed_ticks));
}
#else
uint64_t ticks() { return clock_ns(); }
uint64_t ticks_to_ns(uint64_t difference) { return difference; }
#endif

}  // namespace tutti::core
