// SPDX-License-Identifier: Apache-2.0
//
// The test of the verifier: every algorithm's schedules, changed in every place in every way of the table of mutations.
// The verifier refuses the mutant, or an exhaustive search of all interleavings finds only right results: then it is
// another correct schedule. A mutant that the verifier passes and the search finds wrong is a hole in the verifier.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "mutants/schedules/mutation.hpp"
#include "selection.hpp"

namespace tutti::conformance {

// A correct set to be mutated.
struct NamedSet {
  std::string name;  // "ring all_reduce n=3 root 0 in place on odd ranks"
  ScheduleSet set;
};

// The sets of a selection's algorithms and collectives: 2 to 3 ranks, 2 to 4 from the level standard on; each root at
// either end; out of place, in place everywhere and on odd ranks. And some written by hand for what no algorithm at
// hand does (several lanes on one scratch copy). Throws std::runtime_error when an algorithm fails.
std::vector<NamedSet> schedule_sets(const Selection& selection);

struct ScheduleMutants {
  struct Count {
    uint64_t killed = 0, equivalent = 0;
    std::map<std::string, uint64_t> faults;  // what the verifier named
  };
  std::map<std::string, Count> by_mutation;
  std::vector<std::string> equivalents;  // one line each
  std::vector<std::string> failures;     // holes, and mutants about which nothing could be shown
  uint64_t sets = 0;
  uint64_t orders = 0;  // that the searches ran
};

// With `again` every mutant that is right is mutated once more.
ScheduleMutants try_schedule_mutants(const std::vector<NamedSet>& sets, bool again);

// Prints the table and, with `all`, every equivalent mutant; else one example of each kind. The exit status.
int report_schedule_mutants(const ScheduleMutants& found, bool all);

}  // namespace tutti::conformance
