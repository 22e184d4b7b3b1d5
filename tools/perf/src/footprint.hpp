// SPDX-License-Identifier: Apache-2.0
//
// This process's resources: a user sees from this line whether more ranks would fit.
#pragma once

#include <cstdint>

namespace perf {

struct Footprint {
  uint64_t descriptors = 0;  // open now; 0: unknown
  uint64_t most_descriptors = 0;
  double peak_mib = 0;  // most memory it ever had resident, pages shared with other processes in full
};
Footprint footprint();

}  // namespace perf
