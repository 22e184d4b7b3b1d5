// SPDX-License-Identifier: Apache-2.0
//
// From a wrong element to the step that wrote it.
#pragma once

#include <tutti/schedule.h>

#include <cstdint>
#include <string>
#include <vector>

#include "matrix/cell.hpp"

namespace tutti::conformance {

// True if its ranks are threads of one process.
bool by_threads(const Cell& cell, const Mix& mix);
// The pretended NUMA node of each rank on the host, for algorithms with a level of nodes. A process has one; and ranks
// on a device are threads in some cells.
std::vector<int32_t> numa_of(const Cell& cell, const Mix& mix);
// The operation of a cell as the schedule library sees it.
Problem problem_of(const Cell& cell, const Mix& mix);
// The schedules of all ranks. Throws std::runtime_error when the algorithm does not give them.
std::vector<Schedule> schedules_of(const Cell& cell, const Mix& mix);

// Chunk, slice, step and peer that wrote element `index` of a rank's output last: "chunk 3 of OUT (elements 12 to 19),
// slice 1 of 1; last written by step 5 of lane 0: recv from 2: ...".
std::string blame(const Cell& cell, const Mix& mix, uint32_t rank, uint64_t index, uint64_t slices);

// A diagnosis of a wrong value: "rank 3's contribution is missing", "it is element 40's"; "" when nothing fits. `got`
// are the bits of the output from `index` on, `wrong` of which are known to be wrong.
std::string diagnose(const Cell& cell, const Data& data, uint32_t rank, uint64_t index,
                     const std::vector<uint64_t>& got);

}  // namespace tutti::conformance
