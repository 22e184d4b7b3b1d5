// SPDX-License-Identifier: Apache-2.0
//
// Correct schedules that use what no algorithm at hand does: slices that share scratch copies between two lanes.
#pragma once

#include <vector>

namespace tutti::conformance {

struct NamedSet;

// all_gather of 2 and 3 ranks by way of scratch: one lane receives, another copies to OUT after it, and the first goes
// on to the next slice only when the copy is made. With one and with two scratch copies, and with each slice's own.
void add_staged_sets(std::vector<NamedSet>& sets);

}  // namespace tutti::conformance
