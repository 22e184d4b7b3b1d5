// SPDX-License-Identifier: Apache-2.0
#include "net/interrupt.hpp"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <string>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

struct InterruptState {
  Interrupt::Ask ask = nullptr;
  void* self = nullptr;
  bool asking = false;
  uint64_t count = 0;
  Deadline::Clock::time_point next{};
};
thread_local InterruptState state;

}  // namespace

void Interrupt::set(Ask ask, void* self) noexcept {
  state.ask = ask;
  state.self = self;
  state.next = {};
}

bool Interrupt::is_asking() noexcept { return state.asking; }
uint64_t Interrupt::count() noexcept { return state.count; }

bool Interrupt::is_wanted() {
  if (!state.ask || state.asking) return false;
  const auto now = Deadline::Clock::now();
  if (now < state.next) return false;
  state.next = now + pause;
  state.asking = true;
  bool wanted = true;
  try {
    wanted = state.ask(state.self) != 0;
  } catch (...) {  // an application's; it has no way through here
  }
  state.asking = false;
  if (wanted) ++state.count;
  return wanted;
}

void Interrupt::check() {
  if (is_wanted()) throw Failure(TUTTI_ABORTED, std::string("this rank ") + reason);
}

void Interrupt::wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                           Deadline::Clock::time_point end) {
  if (!state.ask) {
    changed.wait_until(lock, end);
    return;
  }
  changed.wait_until(lock, std::min(end, Deadline::Clock::now() + pause));
  lock.unlock();
  check();
  lock.lock();
}

int Interrupt::poll(pollfd& waiting, int limit_ms) {
  const Deadline limit{std::chrono::milliseconds(limit_ms)};
  for (;;) {
    const int most = state.ask ? static_cast<int>(pause.count()) : INT_MAX;
    const int ready = ::poll(&waiting, 1, limit.poll_ms(most));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
    if (limit.passed()) return 0;
    check();
  }
}

}  // namespace tutti::core
