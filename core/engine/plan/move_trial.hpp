// SPDX-License-Identifier: Apache-2.0
//
// Ordinary or non-temporal stores? Through the transport's memory, or read by the receiver out of the sender's? Which
// is faster differs by a factor of ten either way between machines, placements of ranks, algorithms and sizes: on one
// machine 512 KiB of all_gather take 28 us by ordinary stores and 53 us past the caches, 512 KiB of broadcast 63 us and
// 30 us. No measurement without the peers and their caches tells that, so calls are measured that are made anyway.
//
// Plans of one row of the report (collective, algorithm, transports) and one power-of-two size share a trial. Launches
// that are waited for from their beginning try every way in turn, and the one with the shortest launch is used from
// then on, by later plans from their beginning, until the next trial, which comes after twice as many launches. A
// plan's first launches take no part, since they touch memory for the first time. A way's first launch does not count,
// since it finds in the caches what another way has left there. A purely local choice: it changes no byte.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <map>
#include <tuple>

namespace tutti::core {

// How a launch moves bytes.
struct Moves {
  bool stream_slots = false;    // stores into the transport's memory, for the peer to read, bypass the caches
  bool stream_results = false;  // so do those into the call's buffers
  bool zero_copy = false;       // ordinary memory is sent by reference
};

class MoveTrial {
 public:
  static constexpr uint64_t first_launches = 2;  // of a plan

  // For calls of about so many bytes. Small ones are not worth a trial. `zero_copy`: a link can send ordinary memory by
  // reference.
  MoveTrial(uint64_t bytes, bool zero_copy)
      : worth_(bytes >= smallest),
        ways_(zero_copy && bytes >= smallest_zero_copy ? most_ways : staged_ways),
        best_(bytes >= large ? 2 : 0) {
    shortest_.fill(UINT64_MAX);
  }

  // The moves of a plan's next launch. `before`: how often it has been launched.
  Moves next(uint64_t before) const {
    if (!worth_) return {};
    return moves(before >= first_launches && launches_ < trial() ? way() : best_);
  }
  // How long the launch took that the last next() was for, and how many bytes its call has. One that is not reported
  // takes no part in the trial. `before` as for next().
  void report(uint64_t before, uint64_t ticks, uint64_t bytes) {
    if (!worth_ || before < first_launches) return;
    if (launches_ < trial() && launches_ % 2)
      shortest_[way()] = std::min(shortest_[way()], ticks * parts / std::max<uint64_t>(bytes, 1));
    if (++launches_ == trial())
      best_ = static_cast<uint32_t>(std::min_element(shortest_.begin(), shortest_.begin() + ways_) - shortest_.begin());
    if (launches_ == again_) {
      again_ = std::min(2 * again_, most_again);
      launches_ = 0;
      shortest_.fill(UINT64_MAX);
    }
  }

 private:
  static constexpr uint64_t smallest = 4096, smallest_zero_copy = 65536, large = uint64_t{4} << 20;
  static constexpr uint64_t parts = 65536;  // of a tick for a byte
  static constexpr uint32_t staged_ways = 4, most_ways = 6, rounds = 2, most_again = 1 << 20;
  uint32_t trial() const { return rounds * 2 * ways_; }
  uint32_t way() const { return launches_ / 2 % ways_; }
  static Moves moves(uint32_t way) {
    if (way >= staged_ways) return {false, (way & 1) != 0, true};
    return {(way & 1) != 0, (way & 2) != 0, false};
  }

  bool worth_;
  uint32_t ways_;
  uint32_t best_;                         // until the first trial is over: the way that is usually right
  uint32_t launches_ = 0, again_ = 4096;  // launches from one trial to the next
  std::array<uint64_t, most_ways> shortest_;
};

// The trials of a communicator.
class MoveTrials {
 public:
  // The one of calls of about so many bytes that are served by that row of the report. Lives as long as this object.
  MoveTrial& of(uint32_t row, uint64_t bytes, bool zero_copy) {
    return trials_.try_emplace({row, std::bit_width(bytes), zero_copy}, bytes, zero_copy).first->second;
  }

 private:
  std::map<std::tuple<uint32_t, int, bool>, MoveTrial> trials_;
};

}  // namespace tutti::core
