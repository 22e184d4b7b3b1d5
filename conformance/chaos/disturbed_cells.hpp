// SPDX-License-Identifier: Apache-2.0
//
// A sample of the matrix that is run while faults are put in.
#pragma once

#include <vector>

#include "matrix/cell.hpp"

namespace tutti::conformance {

// One cell or more of every collective by every algorithm that knows it: counts, types, memory, placement and ways of
// calling take turns. All have `nranks` ranks over the mix of that name.
std::vector<Cell> disturbed_cells(const std::string& mix, uint32_t nranks);

}  // namespace tutti::conformance
