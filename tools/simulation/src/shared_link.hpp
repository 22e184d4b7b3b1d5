// SPDX-License-Identifier: Apache-2.0
//
// A link whose bandwidth is shared evenly by the messages that are on it, at any time (processor sharing). A message of
// b bytes is over when b bytes of "fair work" have passed since it came: what a message gets that is there all the
// time.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace tutti::simulation {

class SharedLink {
 public:
  // A message comes. Returns when the next one is over, unless others come.
  double join(double now, uint32_t message, double bytes, double per_byte) {
    pass_time(now, per_byte);
    messages_.push_back({work_ + bytes, message});
    std::push_heap(messages_.begin(), messages_.end());
    return next_ = now_ + (messages_.front().over - work_) * double(messages_.size()) * per_byte;
  }
  // Is this still the time at which a message is over?
  bool is_next(double time) const { return !messages_.empty() && time == next_; }
  // At that time: calls over(message) for all that are over. Returns when the next one is; negative: none is there.
  template <typename Over>
  double depart(double now, double per_byte, Over&& over) {
    now_ = now;
    work_ = messages_.front().over;
    const double close = work_ * (1 + 1e-12);  // equal but for rounding
    while (!messages_.empty() && messages_.front().over <= close) {
      std::pop_heap(messages_.begin(), messages_.end());
      const uint32_t message = messages_.back().message;
      messages_.pop_back();
      over(message);
    }
    if (messages_.empty()) return work_ = 0, -1;
    return next_ = now_ + (messages_.front().over - work_) * double(messages_.size()) * per_byte;
  }

 private:
  struct Entry {
    double over;  // fair work at which it is
    uint32_t message;
    // The first on top of the heap.
    bool operator<(const Entry& other) const {
      return over != other.over ? over > other.over : message > other.message;
    }
  };
  void pass_time(double now, double per_byte) {
    if (!messages_.empty()) work_ += (now - now_) / (per_byte * double(messages_.size()));
    now_ = now;
  }

  std::vector<Entry> messages_;
  double work_ = 0, now_ = 0, next_ = -1;
};

}  // namespace tutti::simulation
