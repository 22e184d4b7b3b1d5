// SPDX-License-Identifier: Apache-2.0
//
// The resources that this process holds.
#pragma once

#include <cstdint>

namespace limits {

struct Cost {
  uint64_t descriptors = 0;
  uint64_t kib = 0;  // memory, shared pages in equal parts (Pss)
};
Cost operator-(const Cost& a, const Cost& b);  // 0 where it would be negative

// Measures the calling process, all threads. Throws std::runtime_error.
Cost cost_of_process();

}  // namespace limits
