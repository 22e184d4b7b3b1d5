// SPDX-License-Identifier: Apache-2.0
//
// Transfers of one lane and kind that have begun. They end in any order and complete in that of their posting.
#pragma once

#include <cstdint>
#include <tutti/sdk/ring.hpp>

namespace tutti::nccl {

class InOrder {
 public:
  bool empty() const { return entries_.empty(); }
  // The number of a transfer that begins.
  uint32_t begin(uint64_t cookie) {
    entries_.push({cookie, 0, 0, TUTTI_OK, false});
    return first_ + static_cast<uint32_t>(entries_.size()) - 1;
  }
  // Calls complete(cookie, status, bytes, mark) for every transfer that may complete now.
  template <typename Complete>
  void end(uint32_t number, tutti_status status, uint64_t bytes, uint32_t mark, Complete&& complete) {
    Entry& entry = entries_[number - first_];
    entry = {entry.cookie, bytes, mark, status, true};
    for (; !entries_.empty() && entries_.front().ended; ++first_) hand_over(entries_.pop(), complete);
  }
  template <typename Complete>
  void end_all(tutti_status status, Complete&& complete) {
    for (; !entries_.empty(); ++first_) {
      Entry entry = entries_.pop();
      if (!entry.ended) entry.status = status;
      hand_over(entry, complete);
    }
  }

 private:
  struct Entry {
    uint64_t cookie = 0, bytes = 0;
    uint32_t mark = 0;
    tutti_status status = TUTTI_OK;
    bool ended = false;
  };
  template <typename Complete>
  static void hand_over(const Entry& entry, Complete&& complete) {
    complete(entry.cookie, entry.status, entry.bytes, entry.mark);
  }
  sdk::Ring<Entry> entries_;
  uint32_t first_ = 0;
};

}  // namespace tutti::nccl
