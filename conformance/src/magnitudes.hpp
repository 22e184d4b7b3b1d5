// SPDX-License-Identifier: Apache-2.0
//
// How large the numbers were that a run has visited, beside what a plugin promises by the widths of the ABI.
#pragma once

#include "result.hpp"

namespace tutti::conformance {

// A line for each transport, algorithm and device that the contract was asked about: the largest numbers that passed
// cases have visited, and what was not visited: "not proved". Nothing for cases picked by hand, or for many plugins at
// once unless `verbose`.
void print_magnitudes(const Run& run, bool verbose);

}  // namespace tutti::conformance
