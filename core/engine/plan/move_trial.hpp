// SPDX-License-Identifier: Apache-2.0
//
// Ordinary or non-temporal stores? Through the transport's memory, or read by the receiver out of the sender's? Which
// is faster differs by a factor of ten either way between machines, placements of ranks, algorithms and sizes: on one
// machine 512 KiB of all_gather take 28 us by ordinary stores and 53 us past the caches, 512 KiB of broadcast 63 us and
// 30 us. No measurement without the peers and their caches tells that, so calls are measured that are made anyway.
//
// Plans of one row of the report (collective, algorithm, transports) and one power-of-two size share a trial. It begins
// with the way that is usually right. Launches that are waited for from their beginning try each other way in turn: two
// launches by the way in use, then two by the other one, and all of that in several rounds. A way takes over only when
// every launch of it that counts was faster than all of the way in use, by a margin: single launches differ by more
// than most ways do. A way that falls behind is not tried again in that trial. Later plans use the winner from their
// beginning. A large call's trial begins with the stores into the transport's memory that won the last one: how far the
// peers' cores are holds for all calls. The next trial comes after twice as many launches, up to a limit: on a virtual
// machine the host may move the ranks' processors apart and together again.
//
// A plan's first launches take no part, since they touch memory for the first time. The first launch by a way does not
// count, since it finds in the caches what another way has left there. A rank that only sends does not see what its
// stores cost the receivers while there is room in the transport, so its margin is larger. It does see how far they
// are: ordinary stores fetch each line from the receiver's cache, which takes two to four times as long as stores past
// the caches where the two share none, and less where they do. A purely local choice: it changes no byte. All ranks try
// the same way at the same launch: each launch has its place in the trial, whatever was decided before.
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

// Calls that share a trial.
struct MovedCalls {
  uint64_t bytes = 0;       // about so many. Small calls are not worth a trial
  bool zero_copy = false;   // a link can send ordinary memory by reference
  bool only_sends = false;  // this rank receives nothing
};

// Words between the trials of a communicator.
struct LastTrial {
  bool stream_slots = false;  // the winner of the last one, of calls of 16 KiB or more
};

class MoveTrial {
 public:
  static constexpr uint64_t first_launches = 2;  // of a plan

  MoveTrial(const MovedCalls& calls, LastTrial& last)
      : last_(last),
        bytes_(calls.bytes),
        worth_(calls.bytes >= smallest),
        ways_(calls.zero_copy && calls.bytes >= smallest_zero_copy ? most_ways : staged_ways),
        rounds_(calls.bytes < smallest_zero_copy ? most_rounds : least_rounds),
        margin_(calls.only_sends ? only_sends_percent : percent),
        first_(calls.bytes >= large ? 2 : 0),
        best_(first_ + (calls.bytes >= slow_calls && last.stream_slots ? 1 : 0)) {
    begin();
  }

  // The moves of a plan's next launch. `before`: how often it has been launched.
  Moves next(uint64_t before) const {
    if (!worth_) return {};
    const bool tries = before >= first_launches && launches_ < length() && launches_ % pattern >= 2;
    return moves(tries && !behind_[way()] ? way() : best_);
  }
  // How long the launch took that the last next() was for, and how many bytes its call has. One that is not reported
  // takes no part in the trial. `before` as for next().
  void report(uint64_t before, uint64_t ticks, uint64_t bytes) {
    if (!worth_ || before < first_launches) return;
    if (launches_ < length()) compare(ticks * parts / std::max<uint64_t>(bytes, 1));
    if (++launches_ == length()) decide();
    if (launches_ == again_) {
      again_ = std::min(2 * again_, most_again);
      begin();
    }
  }

  // The launches of a trial, and the most of any.
  uint32_t length() const { return rounds_ * pattern * ways_; }
  static constexpr uint32_t most_launches() {
    return pattern * std::max(most_rounds * staged_ways, least_rounds * most_ways);
  }

 private:
  static constexpr uint64_t smallest = 4096, smallest_zero_copy = 65536, large = uint64_t{4} << 20;
  static constexpr uint64_t telling = 16384;     // of the peers' cores: the last trial's end
  static constexpr uint64_t slow_calls = 65536;  // whose trials take long: they begin as the last one ended
  static constexpr uint64_t parts = 65536;       // of a tick for a byte
  static constexpr uint32_t staged_ways = 4, most_ways = 6, most_again = 1 << 14;
  static constexpr uint32_t least_rounds = 2, most_rounds = 4;  // small calls differ more, and cost less
  static constexpr uint32_t pattern = 4;                        // launches: two by the way in use, two by another
  static constexpr uint64_t percent = 90, only_sends_percent = 75;  // of the time of the way in use

  // The way whose turn it is. Those most like the first one come first: calls may end before the others have theirs.
  uint32_t way() const { return (launches_ / pattern + first_) % ways_; }
  static Moves moves(uint32_t way) {
    if (way >= staged_ways) return {false, (way & 1) != 0, true};
    return {(way & 1) != 0, (way & 2) != 0, false};
  }
  void begin() {
    launches_ = 0;
    fastest_ = UINT64_MAX;
    slowest_.fill(0);
    behind_.fill(false);
    behind_[best_] = true;
  }
  void compare(uint64_t cost) {
    const uint32_t place = launches_ % pattern;
    if (place == 1) fastest_ = std::min(fastest_, cost);
    if (place < 2 || behind_[way()]) return;
    if (place == 3) slowest_[way()] = std::max(slowest_[way()], cost);
    // A first launch does not count, but there is no second one where it is far behind.
    behind_[way()] = place == 3 ? !beats(cost) : cost > fastest_ + fastest_ / 2;
  }
  bool beats(uint64_t cost) const { return cost * 100 < fastest_ * margin_; }
  void decide() {
    uint32_t winner = best_;
    for (uint32_t way = 0; way < ways_; ++way)
      if (!behind_[way] && beats(slowest_[way]) && (winner == best_ || slowest_[way] < slowest_[winner])) winner = way;
    best_ = winner;
    if (bytes_ >= telling && best_ < staged_ways) last_.stream_slots = moves(best_).stream_slots;
  }

  LastTrial& last_;
  uint64_t bytes_;
  bool worth_;
  uint32_t ways_;
  uint32_t rounds_;
  uint64_t margin_;
  uint32_t first_;                             // the way that is usually right
  uint32_t best_;                              // the way in use
  uint32_t launches_ = 0, again_ = 512;        // launches from one trial to the next
  uint64_t fastest_ = 0;                       // of the launches by the way in use that count
  std::array<uint64_t, most_ways> slowest_{};  // of those by each other way
  std::array<bool, most_ways> behind_{};       // not tried any more in this trial
};

// The trials of a communicator.
class MoveTrials {
 public:
  // Where ranks share cores nothing is sent by reference: the sender would wait for the turns of all receivers.
  explicit MoveTrials(bool shares_cores) : shares_cores_(shares_cores) {}
  // The one of such calls that are served by that row of the report. Lives as long as this object.
  MoveTrial& of(uint32_t row, MovedCalls calls) {
    calls.zero_copy = calls.zero_copy && !shares_cores_;
    const auto key = std::tuple(row, std::bit_width(calls.bytes), calls.zero_copy, calls.only_sends);
    return trials_.try_emplace(key, calls, last_).first->second;
  }

 private:
  const bool shares_cores_;
  LastTrial last_;
  std::map<std::tuple<uint32_t, int, bool, bool>, MoveTrial> trials_;
};

}  // namespace tutti::core
