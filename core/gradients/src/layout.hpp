// SPDX-License-Identifier: Apache-2.0
//
// How tensors are cut into buckets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
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

// The tensors of a bucket, by their numbers: all of one type, in the order of their declaration.
struct Extent {
  uint32_t dtype;
  std::vector<size_t> tensors;
  uint64_t count = 0;  // numbers
  size_t last = 0;     // of its tensors, in the order by which they were cut
};

struct BucketLimits {
  uint64_t first_bytes, bytes;  // of the first bucket of each type, and of the others
  bool consecutive;             // a bucket holds only tensors that follow each other in the order
};

// Cuts the tensors in `order`, which has the number of each once. A tensor joins the last bucket of its type while that
// stays within its limit, else it begins a new one. A tensor beyond the limit has a bucket of its own: none is ever
// divided. Buckets are numbered in the order of their last tensors, which is the order in which they become full.
std::vector<Extent> cut(std::vector<Tensor>& tensors, std::span<const uint64_t> order, const BucketLimits& limits);

}  // namespace tutti::gradients
