// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a rank's buffers: how many elements each has, and where it begins. In collectives with unequal blocks
// both follow from the operation's count and number of ranks: blocks that grow, every other one empty, one that has
// all, fractions. With an odd count the blocks lie in reverse order, so that a call needs displacements.
#pragma once

#include <cstdint>
#include <vector>

#include "oracle/reference.hpp"

namespace tutti::conformance {

bool unequal(uint32_t collective);

// Block `block` of what a rank hands in (`input`), or gets.
uint64_t block_elements(const Operation& operation, uint32_t rank, bool input, uint32_t block);
uint64_t block_begin(const Operation& operation, uint32_t rank, bool input, uint32_t block);
// All blocks of a buffer.
uint64_t elements_in(const Operation& operation, uint32_t rank);
uint64_t elements_out(const Operation& operation, uint32_t rank);

// The block that has element `index` of what a rank gets, and the element's place in it.
struct Position {
  uint32_t block;
  uint64_t within;
};
Position position_of(const Operation& operation, uint32_t rank, uint64_t index);

// Where the block of a rank itself lies in the larger of its buffers.
uint64_t own_begin(const Operation& operation, uint32_t rank);
// Can a rank be in place: does it hand in and get elements, and itself a block of them?
bool has_both(const Operation& operation, uint32_t rank);
// Does any element leave a rank, or come to it?
bool exchanges_any(const Operation& operation, uint32_t rank);

// The arrays of a call with unequal blocks. No displacements: the blocks lie one after another.
struct Arrays {
  std::vector<uint64_t> counts, displacements;
  const uint64_t* places() const { return displacements.empty() ? nullptr : displacements.data(); }
};
Arrays arrays_of(const Operation& operation, uint32_t rank, bool input);

}  // namespace tutti::conformance
