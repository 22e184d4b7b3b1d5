// SPDX-License-Identifier: Apache-2.0
#include "engine/progress.hpp"

#include <algorithm>
#include <chrono>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

namespace tutti::core {

ActiveEngines& ActiveEngines::process() {
  static auto* engines = new ActiveEngines();
  return *engines;
}

void ActiveEngines::add(Engine* engine) {
  const std::lock_guard lock(mutex_);
  if (std::find(engines_.begin(), engines_.end(), engine) != engines_.end()) return;
  engines_.push_back(engine);
  count_.store(static_cast<uint32_t>(engines_.size()), std::memory_order_relaxed);
}

void ActiveEngines::remove(Engine* engine) {
  const std::lock_guard lock(mutex_);
  std::erase(engines_, engine);
  count_.store(static_cast<uint32_t>(engines_.size()), std::memory_order_relaxed);
}

bool ActiveEngines::progress_others(const Engine* self) {
  const uint32_t count = count_.load(std::memory_order_relaxed);
  if (count == 0) return false;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return true;
  bool others = false;
  for (Engine* engine : engines_) {
    if (engine == self) continue;
    others |= engine->try_progress();
  }
  return others;
}

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
