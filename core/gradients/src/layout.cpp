// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <tutti/schedule.h>

#include <algorithm>

namespace tutti::gradients {
namespace {

// The bucket of a type that still takes tensors.
struct Open {
  uint32_t dtype;
  size_t extent;
  uint64_t limit;
};

}  // namespace

uint64_t Tensor::bytes() const { return count * dtype_bytes(dtype); }

std::vector<Extent> cut(std::vector<Tensor>& tensors, std::span<const uint64_t> order, const BucketLimits& limits) {
  std::vector<Extent> extents;
  std::vector<Open> open;
  for (size_t position = 0; position < order.size(); ++position) {
    const Tensor& tensor = tensors[order[position]];
    auto mine = std::ranges::find(open, tensor.dtype, &Open::dtype);
    const bool is_first = mine == open.end();
    if (is_first) mine = open.insert(mine, {tensor.dtype, extents.size(), limits.first_bytes});
    const bool fits = !is_first && (!limits.consecutive || mine->extent + 1 == extents.size()) &&
                      extents[mine->extent].count * dtype_bytes(tensor.dtype) + tensor.bytes() <= mine->limit;
    if (!fits) {
      if (!is_first) *mine = {tensor.dtype, extents.size(), limits.bytes};
      extents.push_back({tensor.dtype, {}, 0, 0});
    }
    Extent& extent = extents[mine->extent];
    extent.tensors.push_back(order[position]);
    extent.count += tensor.count;
    extent.last = position;
  }
  std::ranges::sort(extents, {}, &Extent::last);
  for (size_t bucket = 0; bucket < extents.size(); ++bucket) {
    std::ranges::sort(extents[bucket].tensors);
    uint64_t first = 0;
    for (size_t place = 0; place < extents[bucket].tensors.size(); ++place) {
      Tensor& tensor = tensors[extents[bucket].tensors[place]];
      tensor.bucket = bucket;
      tensor.place = place;
      tensor.first = first;
      first += tensor.count;
    }
  }
  return extents;
}

}  // namespace tutti::gradients
