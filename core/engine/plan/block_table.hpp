// SPDX-License-Identifier: Apache-2.0
//
// The blocks of one rank's buffers in one call of a collective with unequal blocks, in elements. A schedule and its
// plan depend on no block's size, so a plan serves calls with any table: bind_blocks() puts the sizes and places in.
#pragma once

#include <cstdint>
#include <vector>

namespace tutti::core {

struct Plan;
struct Shape;

// The blocks of IN or of OUT: n, one, or none, as block_count() says.
struct BlockList {
  std::vector<uint64_t> counts;
  std::vector<uint64_t> begins;  // the first element of each
  bool operator==(const BlockList&) const = default;

  // The elements of all blocks, and of the buffer up to the end of the last one that is not empty.
  uint64_t total() const;
  uint64_t extent() const;
};

struct BlockTable {
  BlockList in, out;
  bool operator==(const BlockTable&) const = default;

  // The elements of a block of this class (algorithm.h: Unequal blocks), which `rank` knows.
  uint64_t length_of(uint32_t collective, uint32_t nranks, uint32_t rank, uint32_t block_class) const;
  // The count in the shape of this table's calls, the same on all ranks: the highest number with as many digits as the
  // mean of all blocks, or 0 where not all ranks know all sizes.
  uint64_t shape_count(uint32_t collective, uint32_t nranks) const;
};

// Puts the table's sizes and places into a plan of a collective with unequal blocks, of which no launch is under way.
// Allocates nothing where the plan has been bound before. Throws Failure.
void bind_blocks(Plan& plan, const BlockTable& table, uint32_t nranks, uint32_t rank);
// The elements of a chunk of IN, OUT or scratch in a plan that is bound.
uint64_t chunk_length(const Plan& plan, uint32_t nranks, uint32_t rank, uint32_t buffer, uint32_t chunk);

}  // namespace tutti::core
