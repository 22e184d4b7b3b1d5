// SPDX-License-Identifier: Apache-2.0
#include "oracle/blocks.hpp"

#include <algorithm>

namespace tutti::conformance {
namespace {

uint32_t blocks_of(const Operation& o, uint32_t rank, bool input) {
  return input ? blocks_in(o, rank) : blocks_out(o, rank);
}

bool reversed(const Operation& o) { return unequal(o.collective) && o.count % 2; }

// The elements of the block with this number: of the rank that alone hands it in, or alone gets it; of all_to_all_v of
// a pair of ranks.
uint64_t spread(const Operation& o, uint64_t number) {
  switch ((o.count / 2 + o.nranks) % 4) {
    case 0:
      return o.count * (number % 3 + 1) / 2;
    case 1:
      return number % 2 ? o.count : 0;
    case 2:
      return number % o.nranks + 1 == o.nranks ? 2 * o.count : 0;
    default:
      return o.count / (number % 4 + 1);
  }
}

uint64_t total(const Operation& o, uint32_t rank, bool input) {
  uint64_t elements = 0;
  for (uint32_t b = 0; b < blocks_of(o, rank, input); ++b) elements += block_elements(o, rank, input, b);
  return elements;
}

}  // namespace

bool unequal(uint32_t collective) { return collective >= TUTTI_GATHER_V && collective <= TUTTI_ALL_TO_ALL_V; }

uint64_t block_elements(const Operation& o, uint32_t rank, bool input, uint32_t block) {
  switch (o.collective) {
    case TUTTI_GATHER_V:
    case TUTTI_ALL_GATHER_V:
      return spread(o, input ? rank : block);
    case TUTTI_SCATTER_V:
    case TUTTI_REDUCE_SCATTER_V:
      return spread(o, input ? block : rank);
    case TUTTI_ALL_TO_ALL_V:
      return spread(o, input ? uint64_t{rank} * o.nranks + block : uint64_t{block} * o.nranks + rank);
    default:
      return o.count;
  }
}

uint64_t block_begin(const Operation& o, uint32_t rank, bool input, uint32_t block) {
  if (!unequal(o.collective)) return block * o.count;
  uint64_t begin = 0;
  const uint32_t blocks = blocks_of(o, rank, input);
  for (uint32_t b = reversed(o) ? block + 1 : 0; b < (reversed(o) ? blocks : block); ++b)
    begin += block_elements(o, rank, input, b);
  return begin;
}

uint64_t elements_in(const Operation& o, uint32_t rank) { return total(o, rank, true); }
uint64_t elements_out(const Operation& o, uint32_t rank) { return total(o, rank, false); }

Position position_of(const Operation& o, uint32_t rank, uint64_t index) {
  if (!unequal(o.collective))
    return o.count ? Position{static_cast<uint32_t>(index / o.count), index % o.count} : Position{0, 0};
  const uint32_t blocks = blocks_of(o, rank, false);
  for (uint32_t k = 0; k < blocks; ++k) {
    const uint32_t block = reversed(o) ? blocks - 1 - k : k;
    const uint64_t elements = block_elements(o, rank, false, block);
    if (index < elements) return {block, index};
    index -= elements;
  }
  return {0, 0};
}

uint64_t own_begin(const Operation& o, uint32_t rank) {
  return block_begin(o, rank, blocks_in(o, rank) > blocks_out(o, rank), rank);
}

bool has_both(const Operation& o, uint32_t rank) {
  const bool input = blocks_in(o, rank) > blocks_out(o, rank);
  return blocks_in(o, rank) && blocks_out(o, rank) && block_elements(o, rank, input, rank);
}

bool exchanges_any(const Operation& o, uint32_t rank) {
  if (!unequal(o.collective)) return o.count > 0;
  const bool everywhere = o.collective == TUTTI_ALL_GATHER_V || o.collective == TUTTI_REDUCE_SCATTER_V;
  for (const bool input : {false, true})
    for (uint32_t b = 0; b < blocks_of(o, rank, input); ++b) {
      const bool own = blocks_of(o, rank, input) == o.nranks ? b == rank : rooted(o.collective) && rank == o.root;
      if ((everywhere || !own) && block_elements(o, rank, input, b)) return true;
    }
  return false;
}

Arrays arrays_of(const Operation& o, uint32_t rank, bool input) {
  Arrays arrays;
  for (uint32_t b = 0; b < blocks_of(o, rank, input); ++b) {
    arrays.counts.push_back(block_elements(o, rank, input, b));
    if (reversed(o)) arrays.displacements.push_back(block_begin(o, rank, input, b));
  }
  return arrays;
}

}  // namespace tutti::conformance
