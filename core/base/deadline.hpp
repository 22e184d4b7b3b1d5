// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

namespace tutti::core {

// A moment after which a call gives up all of its waits, and how long they were meant to be together (for messages).
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `setting`: what has set the timeout, for messages. "": not said.
  explicit Deadline(std::chrono::nanoseconds timeout, std::string setting = {})
      : timeout_(std::max(timeout, std::chrono::nanoseconds(0))), setting_(std::move(setting)) {
    restart();
  }

  // The time begins now. After a wait that has a limit of its own.
  void restart() { expire_in(timeout_); }
  // Passes in so long, whatever was meant.
  void expire_in(std::chrono::nanoseconds left) {
    const auto now = Clock::now();
    at_ = left > Clock::time_point::max() - now ? Clock::time_point::max() : now + left;
  }

  Clock::time_point at() const { return at_; }
  bool passed() const { return Clock::now() >= at_; }
  std::chrono::nanoseconds left() const { return std::max(at_ - Clock::now(), std::chrono::nanoseconds(0)); }
  // For poll(2): rounded up so that a wait does not spin through its last millisecond, at most `most`.
  int poll_ms(int most) const {
    const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left()).count();
    return static_cast<int>(std::min<long long>(ms, most));
  }
  // The sooner of this deadline and `timeout` from now.
  Deadline sooner(std::chrono::nanoseconds timeout) const {
    Deadline other(timeout);
    return other.at_ < at_ ? other : *this;
  }
  // "30 s", "250 ms", "30 s (TUTTI_CONNECT_TIMEOUT)"
  std::string text() const {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count();
    return (ms >= 1000 && ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms") +
           (setting_.empty() ? "" : " (" + setting_ + ")");
  }

 private:
  std::chrono::nanoseconds timeout_;
  std::string setting_;
  Clock::time_point at_;
};

}  // namespace tutti::core
