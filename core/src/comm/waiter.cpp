// SPDX-License-Identifier: Apache-2.0
#include "comm/waiter.hpp"

#include <sched.h>

#include <chrono>
#include <thread>

namespace tutti::core {

bool Waiter::spin(uint32_t fruitless) const {
  if (fruitless >= policy_.spins + policy_.yields) return true;
  if (fruitless < policy_.spins)
    relax();
  else
    sched_yield();
  return false;
}

void Waiter::rest(uint32_t fruitless) const {
  if (spin(fruitless)) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

void Waiter::pass_time(uint32_t fruitless) {
  if (spin(fruitless)) work_.sleep();
}

void Waiter::pause(uint32_t& fruitless) {
  ++fruitless;
  const bool sleeps = fruitless >= policy_.spins + policy_.yields;
  if (is_due() || sleeps) work_.look_around();
  pass_time(fruitless);
}

bool Waiter::Round::go_on(bool excused) {
  const bool moved = waiter_.work_.progress();
  if (moved || excused) since_ns_ = clock_ns();
  waiter_.work_.look_around();
  if (moved)
    fruitless_ = 0;
  else
    waiter_.pass_time(++fruitless_);
  return clock_ns() - since_ns_ <= limit_ns_;
}

}  // namespace tutti::core
