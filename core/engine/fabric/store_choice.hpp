// SPDX-License-Identifier: Apache-2.0
//
// Ordinary or non-temporal stores into memory that a peer reads? Ordinary ones fetch each line from the peer's cache.
// Where the two cores share a cache they are the faster ones, else they take two to four times as long as stores past
// the caches. Which it is differs between pairs of ranks, and on a virtual machine from one moment to the next. So a
// link measures its copies: one of many is made the other way. A purely local choice: it changes no byte.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "base/clock.hpp"

namespace tutti::core {

class StoreChoice {
 public:
  static constexpr uint64_t smallest = 4096;  // bytes of a copy that is worth measuring
  static constexpr uint32_t copies_per_try = 64;

  // Does the next copy, of so many bytes, go past the caches?
  bool next(uint64_t bytes) { return bytes >= smallest && (copies_++ % copies_per_try == 1) != past_; }
  // That copy took so long.
  void report(bool past, uint64_t bytes, uint64_t ticks) {
    if (bytes < smallest) return;
    const uint64_t spent = ticks * parts / bytes;
    uint64_t& cost = costs_[past];
    // A copy during which the thread lost its core counts as one of twice the usual time.
    cost = cost ? (3 * cost + std::min(spent, 2 * cost)) / 4 : spent;
    // The receiver reads what went past the caches out of memory, which a small gain here does not outweigh.
    past_ = costs_[0] && costs_[1] && costs_[1] * 100 < costs_[0] * percent;
  }
  // Copies by copy(past), and measures that.
  template <typename Copy>
  void measure(uint64_t bytes, Copy&& copy) {
    const bool past = next(bytes);
    const uint64_t begin = ticks();
    copy(past);
    report(past, bytes, ticks() - begin);
  }

 private:
  static constexpr uint64_t parts = 65536;  // of a tick for a byte
  static constexpr uint64_t percent = 60;   // of the time of ordinary stores

  uint32_t copies_ = 0;
  bool past_ = false;
  std::array<uint64_t, 2> costs_{};  // of ordinary stores, and of those past the caches. 0: not measured
};

}  // namespace tutti::core
