// SPDX-License-Identifier: Apache-2.0
//
// Covering arrays: few rows in which every two values of any two factors meet.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

namespace tutti::conformance {

// The number of values of each factor; a value is its number.
using Factors = std::vector<uint32_t>;
// May these values of two factors stand in one row? Asked with factor_a < factor_b. Put the factor that binds most
// others first: rows are completed from it on.
using Allowed = std::function<bool(uint32_t factor_a, uint32_t value_a, uint32_t factor_b, uint32_t value_b)>;

// Rows (a value for each factor) that keep `allowed` and in which every allowed pair that any such row can hold occurs
// at least once. Greedy; deterministic for a seed.
std::vector<std::vector<uint32_t>> cover_pairs(const Factors& factors, const Allowed& allowed, uint64_t seed);

}  // namespace tutti::conformance
