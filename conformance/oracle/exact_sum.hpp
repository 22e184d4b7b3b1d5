// SPDX-License-Identifier: Apache-2.0
//
// Exact sums by integers of any length: one rounding, at the end. Shares nothing with the library's kernels and the
// SDK.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/element.hpp"

namespace tutti::conformance {

// The sum of floating elements, or its quotient by a divisor that is not 0, rounded to nearest with ties to even. NaN
// and infinities as tutti/sdk/exact_sum.hpp has them. A single element that is not divided keeps its bits.
uint64_t exact_sum(const ElementType& type, const std::vector<uint64_t>& elements, uint64_t divisor);

}  // namespace tutti::conformance
