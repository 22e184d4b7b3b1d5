// SPDX-License-Identifier: Apache-2.0
//
// What all ranks of a walk know of each other, in memory that threads or processes share: how far each stream of
// messages is, who has ended what, and the pair messages under way. A rank notes what it does before it does it. So
// whatever a peer sees of it can be held against the note.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>

#include "contract/mail.hpp"

namespace tutti::conformance::contract {

// A new anonymous mapping is all zeros, and a world that nothing has happened in.
struct World {
  static constexpr uint32_t most_ranks = SharedMail::most_ranks, most_lanes = 6, most_communicators = 3;

  // Messages from one rank to another on a lane, counted.
  struct Stream {
    std::atomic<uint32_t> tried;     // SENDs that may have been accepted
    std::atomic<uint32_t> sent;      // SENDs that were accepted
    std::atomic<uint32_t> complete;  // SENDs that are complete; of a sender that has closed: before it closed
    std::atomic<uint32_t> awaited;   // RECVs that were accepted
  };
  // How a rank has ended its part of a communicator, towards one peer or all.
  enum End : uint32_t { gave_up = 1, aborted = 2, closed = 4, died = 8 };
  struct Communicator {
    Stream streams[most_ranks][most_ranks][most_lanes];      // from, to, lane
    std::atomic<uint32_t> controls[most_ranks][most_ranks];  // from, to: control messages that were accepted
    std::atomic<uint32_t> ends[most_ranks][most_ranks];      // who, towards whom: a mask of End
    std::atomic<uint32_t> refusals;                          // so many of the next pair messages find no room
    SharedMail::Pages mail;
  };
  Communicator communicators[most_communicators];
  std::atomic<uint32_t> stages[most_ranks];  // how far a rank is after its steps
  static constexpr uint32_t done = 7;        // of `stages`: a rank that has come so far is all but gone
  std::atomic<uint32_t> dead[most_ranks];
  std::atomic<uint64_t> turns[most_ranks];  // so often a rank went on after its steps; a turn that sleeps counts 100
  std::atomic<uint32_t> first_to_fail;      // 1 + the rank; 0: none has
  std::atomic<uint64_t> news;               // counts all that may move something at another rank

  bool all_reached(uint32_t ranks, uint32_t stage) const {
    for (uint32_t rank = 0; rank < ranks; ++rank)
      if (!dead[rank] && stages[rank] < stage) return false;
    return true;
  }
};

// Does nothing happen in a world any more? Only if for some time nobody had news, though all ranks went on many times
// in each of several rounds. On a busy machine a rank may wait long for its turn, and connecting takes several turns of
// both ends, one after the other.
class Stillness {
 public:
  Stillness(const World& world, uint32_t ranks) : world_(world), ranks_(ranks) { begin(); }
  void begin() {
    news_ = world_.news;
    since_ = std::chrono::steady_clock::now();
    rounds_ = 0;
    begin_round();
  }
  bool lasts(double seconds) {
    constexpr uint64_t many_turns = 2000;
    constexpr uint32_t many_rounds = 15;
    if (news_ != world_.news) begin();
    for (uint32_t rank = 0; rank < ranks_; ++rank)
      if (!world_.dead[rank] && world_.stages[rank] < World::done && world_.turns[rank] < turns_[rank] + many_turns)
        return false;
    begin_round();
    return ++rounds_ > many_rounds &&
           std::chrono::duration<double>(std::chrono::steady_clock::now() - since_).count() > seconds;
  }
  bool had_news() const { return news_ != world_.news; }

 private:
  void begin_round() {
    for (uint32_t rank = 0; rank < ranks_; ++rank) turns_[rank] = world_.turns[rank];
  }

  const World& world_;
  const uint32_t ranks_;
  uint64_t news_ = 0, turns_[World::most_ranks] = {};
  uint32_t rounds_ = 0;
  std::chrono::steady_clock::time_point since_;
};

}  // namespace tutti::conformance::contract
