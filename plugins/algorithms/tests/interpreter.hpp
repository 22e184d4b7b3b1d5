// SPDX-License-Identifier: Apache-2.0
//
// Runs an algorithm's schedules of all ranks on vectors of int64, one step at a time in one thread. It is written from
// tutti/plugin/algorithm.h alone and shares no code with the core, so that a misunderstanding there does not repeat
// itself here.
//
// As strict as an executor may be: two consecutive steps of a lane in flight, a SEND and its RECV happen at once or not
// at all. LOAD triples what is read and FINAL maps what is written x -> 2x + 1, so that a result shows whether both
// were applied exactly once. All other memory is poisoned and looked at afterwards.
#pragma once

#include <tutti/plugin/algorithm.h>
#include <tutti/schedule.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace tutti::test {

struct Case {
  uint32_t collective = 0;
  uint32_t n = 1;
  uint32_t root = 0;
  uint64_t count = 0;                // elements of one block
  uint32_t slices = 1;               // used where the schedules are sliced
  uint64_t in_place = 0;             // bit per rank
  std::vector<uint32_t> hosts = {};  // of each rank; empty: all on one
  uint32_t lanes = 2;                // that the algorithm may use
  // Which of several possible next steps is taken: any value must give the same result.
  uint64_t seed = 1;
};

// Runs the case. "" when every rank's output is right and nothing else was written; else what went wrong.
std::string run(const tutti_algorithm& algorithm, const Case& c);

// Emits one rank's schedule; throws std::runtime_error with the status when the algorithm fails.
Schedule emit(const tutti_algorithm& algorithm, const Case& c, uint32_t rank);

}  // namespace tutti::test
