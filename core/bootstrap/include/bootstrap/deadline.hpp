// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <chrono>
#include <string>

namespace tutti::core {

// A moment after which a wait gives up, and how long the wait was meant to be (for messages).
class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  explicit Deadline(std::chrono::nanoseconds timeout) : timeout_(std::max(timeout, std::chrono::nanoseconds(0))) {
    const auto now = Clock::now();
    at_ = timeout_ > Clock::time_point::max() - now ? Clock::time_point::max() : now + timeout_;
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
  // "30 s", "250 ms"
  std::string text() const {
    const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(timeout_).count();
    return ms >= 1000 && ms % 1000 == 0 ? std::to_string(ms / 1000) + " s" : std::to_string(ms) + " ms";
  }

 private:
  std::chrono::nanoseconds timeout_;
  Clock::time_point at_;
};

}  // namespace tutti::core
