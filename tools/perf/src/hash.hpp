// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

namespace perf {

// The finaliser of SplitMix64: every output bit depends on every input bit.
constexpr uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
  x = (x ^ x >> 27) * 0x94d049bb133111ebu;
  return x ^ x >> 31;
}

}  // namespace perf
