// SPDX-License-Identifier: Apache-2.0
//
// The cost of a job of some number of ranks, as the columns of a table.
#pragma once

#include <array>
#include <cstddef>

namespace perf {

// Times are from the first rank's begin to the last rank's end. Memory, descriptors and threads are what the job has
// more than before, for each rank; memory that processes share counts once.
struct GrowthCost {
  double create_ms = 0;           // the world's communicator
  double first_call_ms = 0;       // its first all_reduce, of 8 bytes
  double next_call_us = 0;        // the same again
  double split_ms = 0;            // the first split into halves, at which the family meets
  double next_split_ms = 0;       // each further one
  double part_first_call_ms = 0;  // the first all_reduce of such a part, of 8 bytes
  double part_destroy_ms = 0;     // each part's end
  double destroy_ms = 0;          // the world's end
  double memory_kib = 0;          // after the world's two calls
  double descriptors = 0;         // the same
  double threads = 0;             // the same
  double family_descriptors = 0;  // of the first split
  double part_memory_kib = 0;     // of each further part that has made a call
  double part_descriptors = 0;    // the same
  double most_descriptors = 0;    // open in one process, at most
  double job_memory_kib = 0;      // of all ranks with all parts
};

struct GrowthColumn {
  const char* key;  // in JSON; with its unit
  const char *head, *unit;
  double GrowthCost::*value;
};
// Those without a head are in JSON alone.
inline constexpr auto growth_columns = std::to_array<GrowthColumn>({
    {"create_ms", "create", "ms", &GrowthCost::create_ms},
    {"first_call_ms", "1st call", "ms", &GrowthCost::first_call_ms},
    {"next_call_us", "2nd call", "us", &GrowthCost::next_call_us},
    {"split_ms", "split", "ms", &GrowthCost::split_ms},
    {"next_split_ms", "further", "ms", &GrowthCost::next_split_ms},
    {"part_first_call_ms", "its call", "ms", &GrowthCost::part_first_call_ms},
    {"part_destroy_ms", "its end", "ms", &GrowthCost::part_destroy_ms},
    {"destroy_ms", "destroy", "ms", &GrowthCost::destroy_ms},
    {"memory_kib", "memory", "KiB", &GrowthCost::memory_kib},
    {"descriptors", "files", "", &GrowthCost::descriptors},
    {"threads", "threads", "", &GrowthCost::threads},
    {"family_descriptors", "", "", &GrowthCost::family_descriptors},
    {"part_memory_kib", "part", "KiB", &GrowthCost::part_memory_kib},
    {"part_descriptors", "part", "files", &GrowthCost::part_descriptors},
    {"most_descriptors_of_a_process", "", "", &GrowthCost::most_descriptors},
    {"job_memory_kib", "", "", &GrowthCost::job_memory_kib},
});

}  // namespace perf
