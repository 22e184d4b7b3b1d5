// SPDX-License-Identifier: Apache-2.0
#include "comm/idle.hpp"

#include <algorithm>

namespace tutti::core {
namespace {

struct IdleState {
  tutti_idle_function work = nullptr;
  void* context = nullptr;
  bool at_work = false;
};
thread_local IdleState idle;

}  // namespace

void Idle::set(tutti_idle_function work, void* context) noexcept {
  idle.work = work;
  idle.context = context;
}

void Idle::run() noexcept {
  if (!idle.work || idle.at_work) return;
  idle.at_work = true;
  try {
    idle.work(idle.context);
  } catch (...) {  // an application's; it has no way through here
  }
  idle.at_work = false;
}

uint64_t Idle::limit(uint64_t sleep_ns) noexcept {
  constexpr uint64_t most_ns = 1'000'000;
  return idle.work ? std::min(sleep_ns, most_ns) : sleep_ns;
}

}  // namespace tutti::core
