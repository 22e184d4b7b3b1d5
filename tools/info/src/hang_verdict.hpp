// SPDX-License-Identifier: Apache-2.0
//
// From the flight records of a communicator's ranks to one sentence: who keeps whom waiting.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "flight_file.hpp"
#include "process_state.hpp"

namespace info {

struct RankView {
  FlightRecord record;
  ProcessState process = ProcessState::elsewhere;
  bool moved = false;  // something was issued, completed or got on between two looks at the record
};

// The records of one communicator, or of one meeting of ranks that have none yet. One view per rank.
struct CommunicatorView {
  std::string name;
  uint64_t id = 0;              // 0: still being made
  uint32_t nranks = 0;          // 0: not known
  std::vector<RankView> ranks;  // by rank, those of which there is a record
  double now_ns = 0;            // of the ranks' clocks, as far as they are of this host

  const RankView* find(uint32_t rank) const;
  std::vector<uint32_t> absent() const;
};

enum class Finding {
  none,      // nobody waits, or what is waited for moves
  absent,    // a rank has not arrived at the communicator's making
  creating,  // all have arrived, and it is not finished
  dead,
  stopped,
  failed,    // a rank has ended the communicator's use with an error
  mismatch,  // the ranks' calls differ
  missing,   // a rank has not entered what others wait in
  stuck,     // all are in it and nothing moves
  cycle      // ranks wait for each other, most often in different communicators
};
const char* finding_name(Finding finding);

struct Verdict {
  Finding finding = Finding::none;
  std::vector<uint32_t> culprits;
  std::string text;
};

struct JudgedCommunicator {
  CommunicatorView view;
  Verdict verdict;
};

// A pure function of the view, which knows no other communicator (wait_graph.hpp joins them).
Verdict judge(const CommunicatorView& view);

// "14 s", "0.3 s", "2 h 5 min"
std::string age_text(double ns);
// "rank 2", "ranks 0, 1 and 3", "ranks 0-7"
std::string ranks_text(const std::vector<uint32_t>& ranks);

}  // namespace info
