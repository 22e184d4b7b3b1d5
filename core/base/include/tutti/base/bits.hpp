// SPDX-License-Identifier: Apache-2.0
//
// Masks of numbers that come from outside: collectives, types, operators, kinds of memory.
#pragma once

#include <cstdint>

namespace tutti {

// Has the mask the bit of this number? A number beyond the mask is not in it.
constexpr bool has_bit(uint64_t mask, uint64_t number) { return number < 64 && (mask >> number & 1) != 0; }

}  // namespace tutti
