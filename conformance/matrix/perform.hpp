// SPDX-License-Identifier: Apache-2.0
//
// Running a cell on one rank, and judging what came out.
#pragma once

#include "matrix/members.hpp"

namespace tutti::conformance {

// All trials of the cell at `rank`. Every rank calls it at once, with the same seed. Failures of the library throw
// tutti::Error.
Outcome perform(const Cell& cell, const Mix& mix, Members& members, uint32_t rank, uint64_t seed,
                Attestation& attestation);

}  // namespace tutti::conformance
