// SPDX-License-Identifier: Apache-2.0
//
// The meaning of each collective, as a rule for every element. The suite defines it nowhere else.
#pragma once

#include <tutti/plugin/types.h>

#include <cstdint>

#include "oracle/data.hpp"

namespace tutti::conformance {

struct Operation {
  uint32_t collective = 0;
  uint32_t nranks = 1;
  uint32_t root = 0;
  uint64_t count = 0;
};

// Blocks of `count` elements that a rank hands in, or gets; 0: it has no such buffer.
uint32_t blocks_in(const Operation& operation, uint32_t rank);
uint32_t blocks_out(const Operation& operation, uint32_t rank);
bool reduces(uint32_t collective);
bool rooted(uint32_t collective);

// Elements that one rank's data has, as Pattern::length wants it: the same on all ranks, whether they hand in or not.
uint64_t data_length(const Operation& operation);
// Bits of element `index` of what `rank` gets. `data` has the operation's ranks and data_length.
uint64_t expected_output(const Operation& operation, const Data& data, uint32_t rank, uint64_t index);
// The index in every rank's input of the first element of which a rank gets the reduction.
uint64_t reduced_begin(const Operation& operation, uint32_t rank);
// How many ranks, from rank 0 on, contribute to what a rank gets.
uint32_t reduced_ranks(const Operation& operation, uint32_t rank);
// The rank, and its index, from which a moving collective brings element `index` to `rank`.
struct Origin {
  uint32_t rank;
  uint64_t index;
};
Origin origin_of(const Operation& operation, uint32_t rank, uint64_t index);

// How a call in place lays one buffer over the other.
enum class Overlay {
  same,          // in == out
  in_is_block,   // in == out + rank * count
  out_is_block,  // out == in + rank * count
};
Overlay overlay_of(uint32_t collective);

}  // namespace tutti::conformance
