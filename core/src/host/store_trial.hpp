// SPDX-License-Identifier: Apache-2.0
//
// Ordinary or non-temporal stores? Which is faster differs by a factor of ten either way between machines, placements
// of ranks and sizes, so it is measured: the first blocking launches of a plan try every combination in turn, and the
// one with the shortest launch is used from then on, until the next trial. A purely local choice: it changes no byte.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tutti::core {

// The destinations whose stores bypass the caches.
struct Stores {
  bool slots = false;    // into the transport's memory, for the peer to read
  bool results = false;  // into the call's buffers
};

class StoreTrial {
 public:
  // For a plan of so many bytes. Small ones are not worth a trial.
  explicit StoreTrial(uint64_t bytes = 0) : worth_(bytes >= smallest), usual_{false, bytes >= large} {}

  // The stores of the next launch; `timed` launches take part in the trial and are reported.
  Stores next(bool timed) {
    if (!worth_) return {};
    if (!timed) return chosen_ ? stores(best_) : usual_;
    if (launches_ >= trial) return stores(best_);
    return stores(launches_ % combinations);
  }
  // How long the launch took that the last next(true) was for.
  void report(uint64_t ticks) {
    if (!worth_) return;
    if (launches_ < trial) {
      uint64_t& shortest = shortest_[launches_ % combinations];
      shortest = std::min(shortest, ticks);
    }
    if (++launches_ == trial) {
      best_ = static_cast<uint32_t>(std::min_element(shortest_.begin(), shortest_.end()) - shortest_.begin());
      chosen_ = true;
    }
    if (launches_ == again) {
      launches_ = 0;
      shortest_.fill(UINT64_MAX);
    }
  }

 private:
  static constexpr uint64_t smallest = 4096, large = uint64_t{4} << 20;
  static constexpr uint32_t combinations = 4, trial = 3 * combinations, again = 4096;
  static Stores stores(uint32_t combination) { return {(combination & 1) != 0, (combination & 2) != 0}; }

  bool worth_;
  bool chosen_ = false;
  Stores usual_;
  uint32_t launches_ = 0;
  uint32_t best_ = 0;
  std::array<uint64_t, combinations> shortest_{UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
};

}  // namespace tutti::core
