// SPDX-License-Identifier: Apache-2.0
//
// Ordinary or non-temporal stores? Through the transport's memory, or read by the receiver out of the sender's? Which
// is faster differs by a factor of ten either way between machines, placements of ranks and sizes, so it is measured:
// the first launches of a plan that are waited for from their beginning try every way in turn, and the one with the
// shortest launch is used from then on, until the next trial. The very first launches do not count, since they touch
// memory for the first time, nor does a way's first one, since it finds in the caches what another way has left there.
// A purely local choice: it changes no byte.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

namespace tutti::core {

// How a launch moves bytes.
struct Moves {
  bool stream_slots = false;    // stores into the transport's memory, for the peer to read, bypass the caches
  bool stream_results = false;  // so do those into the call's buffers
  bool direct = false;          // ordinary memory is sent by reference
};

class MoveTrial {
 public:
  // For a plan of so many bytes. Small ones are not worth a trial. `direct`: a link of it can send ordinary memory by
  // reference.
  explicit MoveTrial(uint64_t bytes = 0, bool direct = false)
      : worth_(bytes >= smallest),
        ways_(direct && bytes >= smallest_direct ? most_ways : staged_ways),
        best_(bytes >= large ? 2 : 0) {
    shortest_.fill(UINT64_MAX);
  }

  // The moves of the next launch.
  Moves next() const {
    if (!worth_) return {};
    return moves(launches_ >= first && launches_ < trial() ? way() : best_);
  }
  // How long the launch took that the last next() was for. One that is not reported takes no part in the trial.
  void report(uint64_t ticks) {
    if (!worth_) return;
    if (launches_ >= first && launches_ < trial() && (launches_ - first) % 2)
      shortest_[way()] = std::min(shortest_[way()], ticks);
    if (++launches_ == trial())
      best_ = static_cast<uint32_t>(std::min_element(shortest_.begin(), shortest_.begin() + ways_) - shortest_.begin());
    if (launches_ == again) {
      launches_ = 0;
      shortest_.fill(UINT64_MAX);
    }
  }

 private:
  static constexpr uint64_t smallest = 4096, smallest_direct = 65536, large = uint64_t{4} << 20;
  static constexpr uint32_t staged_ways = 4, most_ways = 6, first = 2, rounds = 2, again = 4096;
  uint32_t trial() const { return first + rounds * 2 * ways_; }
  uint32_t way() const { return (launches_ - first) / 2 % ways_; }
  static Moves moves(uint32_t way) {
    if (way >= staged_ways) return {false, (way & 1) != 0, true};
    return {(way & 1) != 0, (way & 2) != 0, false};
  }

  bool worth_;
  uint32_t ways_;
  uint32_t best_;  // until the first trial is over: the way that is usually right
  uint32_t launches_ = 0;
  std::array<uint64_t, most_ways> shortest_;
};

}  // namespace tutti::core
