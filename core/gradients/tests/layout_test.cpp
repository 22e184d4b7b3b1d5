// SPDX-License-Identifier: Apache-2.0
#include "layout.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <numeric>

namespace tutti::gradients {
namespace {

using Buckets = std::vector<std::vector<size_t>>;

std::vector<Tensor> tensors_of(const std::vector<std::pair<uint64_t, uint32_t>>& list) {
  std::vector<Tensor> made;
  for (const auto& [count, dtype] : list) made.push_back({"", count, dtype});
  return made;
}

// The tensors of each bucket. Each of them must know where it is.
Buckets buckets_of(std::vector<Tensor> tensors, const std::vector<uint64_t>& order, const BucketLimits& limits) {
  Buckets made;
  for (const Extent& extent : cut(tensors, order, limits)) {
    uint64_t next = 0;
    for (size_t place = 0; place < extent.tensors.size(); ++place) {
      const Tensor& tensor = tensors[extent.tensors[place]];
      EXPECT_EQ(tensor.dtype, extent.dtype);
      EXPECT_EQ(tensor.bucket, made.size());
      EXPECT_EQ(tensor.place, place);
      EXPECT_EQ(tensor.first, next);
      next += tensor.count;
    }
    EXPECT_EQ(next, extent.count);
    made.push_back(extent.tensors);
  }
  return made;
}

constexpr uint32_t f4 = TUTTI_FLOAT32, f8 = TUTTI_FLOAT64, i1 = TUTTI_INT8;

TEST(Layout, BucketsTakeTensorsUpToTheirLimits) {
  const auto tensors = tensors_of({{20, f4}, {5, f4}, {1, f4}, {249, f4}, {1, f4}, {2000, f4}, {10, f4}});
  EXPECT_EQ(buckets_of(tensors, {0, 1, 2, 3, 4, 5, 6}, {100, 1000, false}), (Buckets{{0, 1}, {2, 3}, {4}, {5}, {6}}));
}

TEST(Layout, WithinABucketTensorsHaveTheirDeclaredOrder) {
  const auto tensors = tensors_of({{5, f4}, {5, f4}, {5, f4}, {5, f4}, {5, f4}});
  EXPECT_EQ(buckets_of(tensors, {4, 3, 2, 1, 0}, {20, 40, false}), (Buckets{{4}, {2, 3}, {0, 1}}));
}

// Buckets become full in the order of their numbers, where tensors become ready in the order by which they were cut.
TEST(Layout, ABucketOfEachTypeIsOpen) {
  const auto tensors = tensors_of({{2, f4}, {2, f8}, {2, f4}, {2, i1}, {9, f8}, {2, f4}, {1, f8}});
  EXPECT_EQ(buckets_of(tensors, {0, 1, 2, 3, 4, 5, 6}, {80, 80, false}), (Buckets{{1}, {3}, {0, 2, 5}, {4, 6}}));
  EXPECT_EQ(buckets_of(tensors, {0, 1, 2, 3, 4, 5, 6}, {800, 800, true}), (Buckets{{0}, {1}, {2}, {3}, {4}, {5}, {6}}));
  EXPECT_EQ(buckets_of(tensors, {0, 2, 5, 1, 4, 6, 3}, {800, 800, true}), (Buckets{{0, 2, 5}, {1, 4, 6}, {3}}));
}

TEST(Layout, TheFirstBucketOfEachTypeHasItsOwnLimit) {
  const auto tensors = tensors_of({{1, f4}, {1, f8}, {1, f4}, {1, f8}, {1, f4}, {1, f8}});
  EXPECT_EQ(buckets_of(tensors, {0, 1, 2, 3, 4, 5}, {1, 100, false}), (Buckets{{0}, {1}, {2, 4}, {3, 5}}));
}

}  // namespace
}  // namespace tutti::gradients
