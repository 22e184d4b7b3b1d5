// SPDX-License-Identifier: Apache-2.0
#include "oracle/reference.hpp"

#include <algorithm>

#include "oracle/blocks.hpp"

namespace tutti::conformance {
namespace {

// How many blocks a buffer has: none, one, one per rank; everywhere, at the root only, or behind rank 0 only.
enum class Blocks { none, one, all, one_at_root, all_at_root, one_behind_first };

struct Meaning {
  Blocks in, out;
  bool reduces, rooted;
  Overlay overlay;
};

constexpr Meaning meanings[] = {
    {Blocks::none, Blocks::none, false, false, Overlay::same},               // no collective
    {Blocks::one_at_root, Blocks::one, false, true, Overlay::same},          // broadcast
    {Blocks::one, Blocks::one_at_root, true, true, Overlay::same},           // reduce
    {Blocks::one, Blocks::one, true, false, Overlay::same},                  // all_reduce
    {Blocks::one, Blocks::all_at_root, false, true, Overlay::in_is_block},   // gather
    {Blocks::one, Blocks::all, false, false, Overlay::in_is_block},          // all_gather
    {Blocks::all_at_root, Blocks::one, false, true, Overlay::out_is_block},  // scatter
    {Blocks::all, Blocks::one, true, false, Overlay::out_is_block},          // reduce_scatter
    {Blocks::all, Blocks::all, false, false, Overlay::same},                 // all_to_all
    {Blocks::none, Blocks::none, false, false, Overlay::same},               // barrier
    {Blocks::one, Blocks::all_at_root, false, true, Overlay::in_is_block},   // gather_v
    {Blocks::one, Blocks::all, false, false, Overlay::in_is_block},          // all_gather_v
    {Blocks::all_at_root, Blocks::one, false, true, Overlay::out_is_block},  // scatter_v
    {Blocks::all, Blocks::one, true, false, Overlay::out_is_block},          // reduce_scatter_v
    {Blocks::all, Blocks::all, false, false, Overlay::same},                 // all_to_all_v
    {Blocks::one, Blocks::one, true, false, Overlay::same},                  // scan
    {Blocks::one, Blocks::one_behind_first, true, false, Overlay::same},     // exclusive_scan
};
static_assert(sizeof meanings / sizeof *meanings == TUTTI_EXCLUSIVE_SCAN + 1);

uint32_t number_of(Blocks blocks, const Operation& o, uint32_t rank) {
  switch (blocks) {
    case Blocks::none:
      return 0;
    case Blocks::one:
      return 1;
    case Blocks::all:
      return o.nranks;
    case Blocks::one_at_root:
      return rank == o.root ? 1 : 0;
    case Blocks::all_at_root:
      return rank == o.root ? o.nranks : 0;
    case Blocks::one_behind_first:
      return rank > 0 ? 1 : 0;
  }
  return 0;
}

}  // namespace

uint32_t blocks_in(const Operation& o, uint32_t rank) { return number_of(meanings[o.collective].in, o, rank); }
uint32_t blocks_out(const Operation& o, uint32_t rank) { return number_of(meanings[o.collective].out, o, rank); }
bool reduces(uint32_t collective) { return meanings[collective].reduces; }
bool rooted(uint32_t collective) { return meanings[collective].rooted; }
Overlay overlay_of(uint32_t collective) { return meanings[collective].overlay; }

uint64_t data_length(const Operation& o) {
  const Blocks in = meanings[o.collective].in;
  if (in == Blocks::none) return 0;
  if (!unequal(o.collective)) return in == Blocks::all || in == Blocks::all_at_root ? o.count * o.nranks : o.count;
  uint64_t most = 0;
  for (uint32_t rank = 0; rank < o.nranks; ++rank) most = std::max(most, elements_in(o, rank));
  return most;
}

Origin origin_of(const Operation& o, uint32_t rank, uint64_t index) {
  const auto [block, within] = position_of(o, rank, index);
  switch (o.collective) {
    case TUTTI_BROADCAST:
      return {o.root, index};
    case TUTTI_SCATTER:
    case TUTTI_SCATTER_V:
      return {o.root, block_begin(o, o.root, true, rank) + index};
    case TUTTI_ALL_TO_ALL:
    case TUTTI_ALL_TO_ALL_V:
      return {block, block_begin(o, block, true, rank) + within};
    default:  // gather, all_gather
      return {block, within};
  }
}

uint64_t reduced_begin(const Operation& o, uint32_t rank) {
  const bool scatters = o.collective == TUTTI_REDUCE_SCATTER || o.collective == TUTTI_REDUCE_SCATTER_V;
  return scatters ? block_begin(o, rank, true, rank) : 0;
}

uint32_t reduced_ranks(const Operation& o, uint32_t rank) {
  return o.collective == TUTTI_SCAN ? rank + 1 : o.collective == TUTTI_EXCLUSIVE_SCAN ? rank : o.nranks;
}

uint64_t expected_output(const Operation& o, const Data& data, uint32_t rank, uint64_t index) {
  if (reduces(o.collective)) return data.reduced(reduced_begin(o, rank) + index, reduced_ranks(o, rank));
  const Origin origin = origin_of(o, rank, index);
  return data.input(origin.rank, origin.index);
}

}  // namespace tutti::conformance
