// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <tutti/schedule.h>

namespace tutti::gradients {

uint64_t Tensor::bytes() const { return count * dtype_bytes(dtype); }

std::vector<Extent> cut(std::vector<Tensor>& tensors, uint64_t first_bytes, uint64_t bytes) {
  std::vector<Extent> extents;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Tensor& tensor = tensors[i];
    const uint64_t limit = extents.size() <= 1 ? first_bytes : bytes;
    const bool fits = !extents.empty() && extents.back().dtype == tensor.dtype &&
                      extents.back().count * dtype_bytes(tensor.dtype) + tensor.bytes() <= limit;
    if (!fits) extents.push_back({i, 0, 0, tensor.dtype});
    Extent& extent = extents.back();
    tensor.bucket = extents.size() - 1;
    tensor.place = extent.tensors++;
    tensor.first = extent.count;
    extent.count += tensor.count;
  }
  return extents;
}

}  // namespace tutti::gradients
