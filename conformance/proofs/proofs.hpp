// SPDX-License-Identifier: Apache-2.0
//
// Schedules, proved before any number is run: every algorithm for every collective that it claims, at all ranks to 64.
#pragma once

#include <tutti/plugin/algorithm.h>

#include "suites.hpp"

namespace tutti::conformance {

// All numbers of ranks to this one are proved. The contract has some beyond.
constexpr uint32_t proved_ranks = 64;
// Problems at random besides.
constexpr uint32_t random_problems = 20;

Suite proof_suite();

// The proof of one algorithm for one collective: at each number of ranks to `most`, from many roots, on many placements
// (problems.hpp), with 1 to 8 lanes; and problems by the seed. Proved is that supports() answers the same for every
// rank, that the same query gives the same schedule, and what objection_to() says. A problem that fails is made small.
Outcome prove(const tutti_algorithm& algorithm, uint32_t collective, uint32_t most, uint64_t seed = 1);

}  // namespace tutti::conformance
