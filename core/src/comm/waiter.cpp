// SPDX-License-Identifier: Apache-2.0
#include "comm/waiter.hpp"

#include <sched.h>

#include <chrono>
#include <thread>

namespace tutti::core {

uint64_t Waiter::yield() const {
  const uint64_t begin = clock_ns();
  sched_yield();
  const uint64_t end = clock_ns();
  if (has_own_core()) foreign_turns_.yielded(begin, end);
  return end - begin;
}

// A yield returns at once where nobody else wants the core: then polls are free. Ranks give the core back after their
// own few polls: the shorter all of them poll, the sooner the one that has something to do gets it. Where ranks share
// cores one poll is enough: more of them delay the rank that is waited for. A thread that keeps the core for a slice of
// the scheduler's time computes, or is a rank that does not know yet.
void Waiter::yield_and_learn() const {
  constexpr uint64_t at_once_ns = 1500;
  const uint32_t spins = spins_.load(std::memory_order_relaxed), most = policy_.spins;
  const uint32_t least_spins = has_own_core() ? 16 : 1;
  const uint64_t spent = yield();
  const uint32_t next = spent < at_once_ns               ? spins * 2
                        : spent < ForeignTurns::slice_ns ? spins / 4
                                                         : std::max(spins / 2, first_spins);
  spins_.store(std::min(std::max(next, least_spins), most), std::memory_order_relaxed);
}

bool Waiter::spin(uint32_t fruitless) const {
  if (is_time_to_sleep(fruitless)) return true;
  const uint32_t spins = spins_.load(std::memory_order_relaxed);
  if (fruitless < spins)
    relax();
  else if (fruitless == spins)
    yield_and_learn();
  else if (has_own_core())
    yield();
  else
    sched_yield();
  return false;
}

void Waiter::rest(uint32_t fruitless) const {
  if (spin(fruitless)) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void Waiter::pass_time(uint32_t fruitless, uint64_t deadline_ns) {
  if (!spin(fruitless)) return;
  const uint64_t now = deadline_ns == for_ever ? 0 : clock_ns();
  if (now < deadline_ns) work_.sleep(deadline_ns - now);
}

bool Waiter::turn(uint32_t& fruitless, Patience& patience, bool excused) {
  const bool moved = work_.progress();
  if (moved) patience.renew();
  pass(fruitless, moved, for_ever, true);
  if (excused) patience.renew();  // it may have slept for long
  return !patience.is_over();
}

}  // namespace tutti::core
