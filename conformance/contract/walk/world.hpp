// SPDX-License-Identifier: Apache-2.0
//
// What all ranks of a walk know of each other, in memory that threads or processes share: how far each stream of
// messages is, who has ended what, and the pair messages under way. A rank notes what it does before it does it. So
// whatever a peer sees of it can be held against the note.
#pragma once

#include <atomic>
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
  std::atomic<uint32_t> dead[most_ranks];

  bool all_reached(uint32_t ranks, uint32_t stage) const {
    for (uint32_t rank = 0; rank < ranks; ++rank)
      if (!dead[rank] && stages[rank] < stage) return false;
    return true;
  }
};

}  // namespace tutti::conformance::contract
