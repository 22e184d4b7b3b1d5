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

struct Question {
  Interrupt::Ask ask = nullptr;
  void* self = nullptr;
  bool asking = false;
  uint64_t count = 0;
  Deadline::Clock::time_point next{};
};
thread_local Question question;

}  // namespace

void Interrupt::set(Ask ask, void* self) noexcept {
  question.ask = ask;
  question.self = self;
  question.next = {};
}

bool Interrupt::is_asking() noexcept { return question.asking; }
uint64_t Interrupt::count() noexcept { return question.count; }

bool Interrupt::is_wanted() {
  if (!question.ask || question.asking) return false;
  const auto now = Deadline::Clock::now();
  if (now < question.next) return false;
  question.next = now + pause;
  question.asking = true;
  bool wanted = true;
  try {
    wanted = question.ask(question.self) != 0;
  } catch (...) {  // an application's; it has no way through here
  }
  question.asking = false;
  if (wanted) ++question.count;
  return wanted;
}

void Interrupt::check() {
  if (is_wanted()) throw Failure(TUTTI_ABORTED, std::string("this rank ") + reason);
}

void Interrupt::wait_until(std::condition_variable& changed, std::unique_lock<std::mutex>& lock,
                           Deadline::Clock::time_point end) {
  if (!question.ask) {
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
    const int most = question.ask ? static_cast<int>(pause.count()) : INT_MAX;
    const int ready = ::poll(&waiting, 1, limit.poll_ms(most));
    if (ready > 0 || (ready < 0 && errno != EINTR)) return ready;
    if (limit.passed()) return 0;
    check();
  }
}

}  // namespace tutti::core
