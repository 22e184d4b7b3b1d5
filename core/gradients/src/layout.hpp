// SPDX-License-Identifier: Apache-2.0
//
// How tensors are cut into buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::gradients {

struct Tensor {
  std::string name;  // `5 ("layer1.weight")`
  uint64_t count;
  uint32_t dtype;
  // Written by cut(): its bucket, which of the bucket's tensors it is, and its first number in the bucket.
  size_t bucket = 0, place = 0;
  uint64_t first = 0;
  uint64_t bytes() const;
};

// Consecutive tensors of one type.
struct Extent {
  size_t first_tensor, tensors;
  uint64_t count;  // numbers
  uint32_t dtype;
};

// A bucket takes tensors, in their order, while they have its type and it stays within its limit: `first_bytes` for the
// first bucket, `bytes` for the others. A tensor beyond the limit has a bucket of its own: none is ever divided.
std::vector<Extent> cut(std::vector<Tensor>& tensors, uint64_t first_bytes, uint64_t bytes);

}  // namespace tutti::gradients
