// SPDX-License-Identifier: Apache-2.0
//
// Schedules, proved before any number is run: every algorithm for every collective that it claims, at all ranks to 64.
#pragma once

#include <tutti/plugin/algorithm.h>

#include "suites.hpp"

namespace tutti::conformance {

constexpr uint32_t proved_ranks = 64;

Suite proof_suite();

// The proof of one algorithm for one collective: at each number of ranks to `most`, from several roots, on one host, on
// two and on hosts at random (by a seed that is the number of ranks); that supports() answers the same for every rank,
// that the same query gives the same schedule, and what tutti::verify_algorithm proves.
Outcome prove(const tutti_algorithm& algorithm, uint32_t collective, uint32_t most);

}  // namespace tutti::conformance
