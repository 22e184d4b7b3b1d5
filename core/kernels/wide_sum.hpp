// SPDX-License-Identifier: Apache-2.0
//
// The exact sum of one element's contributions in a fixed-point number that has a place for every bit of the type.
#pragma once

#include <cstdint>

namespace tutti::core {

// The exact sum of element `index` of the sources, divided by `divisor` unless that is 0, rounded once to `dtype`: to
// nearest, ties to even. The result is a value of that type, an infinity where it rounds beyond the largest number, or
// NaN. Special numbers as in exact_sum.hpp. dtype: TUTTI_FLOAT16, BFLOAT16, FLOAT32 or FLOAT64. At most 2^30 sources,
// and a divisor of at most 2^26.
double wide_sum(uint32_t dtype, const void* const* srcs, uint32_t nsrcs, uint64_t index, uint64_t divisor);

}  // namespace tutti::core
