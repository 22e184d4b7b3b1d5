// SPDX-License-Identifier: Apache-2.0
//
// Gradients whose mean is known exactly, in every wire format and type.
//
// Element i of a tensor is 1 or -1 on all ranks, by a hash of (seed, tensor, i), which is also its mean. Two ranks
// that the hash chooses have d more and d less than that, d in 2 ... 7. So a contribution that is lost, doubled or at
// another place changes elements, every number is exact in all formats, and results may serve as the next step's
// gradients: their mean is the same.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace perf {

struct GradientPattern {
  uint64_t seed;
  uint64_t tensor;
  uint32_t nranks;
  uint32_t dtype;  // TUTTI_FLOAT16, _BFLOAT16, _FLOAT32 or _FLOAT64
};

// The most ranks whose partial sums the type can hold exactly.
uint32_t most_exact_ranks(uint32_t dtype);

void fill_gradient(const GradientPattern& pattern, uint32_t rank, uint64_t count, void* data);

struct WrongMeans {
  uint64_t count = 0;
  uint64_t first = 0;  // the first one's index
  double expected = 0, got = 0;
};
WrongMeans check_mean(const GradientPattern& pattern, uint64_t count, const void* data);

}  // namespace perf
