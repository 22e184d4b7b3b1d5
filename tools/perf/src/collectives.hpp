// SPDX-License-Identifier: Apache-2.0
//
// The collectives that can be measured, as a table: names, shapes, bandwidth factors, where each part of the result
// comes from, and the call itself.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <span>
#include <string>

namespace perf {

// The arguments of one call.
struct Call {
  tutti_comm* comm = nullptr;
  uint32_t rank = 0;
  uint32_t nranks = 1;
  const void* in = nullptr;
  void* out = nullptr;
  uint64_t count = 0;
  const uint64_t* in_counts = nullptr;  // of each block, as the next
  const uint64_t* out_counts = nullptr;
  uint32_t dtype = 0;
  uint32_t op = 0;
  uint32_t root = 0;
  const tutti_options* options = nullptr;
};

// How many blocks of `count` elements a buffer has: none, one, or as many as there are ranks.
enum class Blocks { none, one, per_rank };
// The source of block b of OUT at rank r: (rank, block) of an input, or the reduction of a block over all ranks.
enum class Origin {
  nothing,
  root,           // root's IN, block 0
  own_share,      // root's IN, block r
  reduced,        // all ranks' IN, block 0
  reduced_share,  // all ranks' IN, block r
  prefix,         // IN of ranks 0 ... r, block 0
  prefix_before,  // IN of ranks 0 ... r-1, block 0; rank 0 has no result
  each_rank,      // rank b's IN, block 0
  each_share,     // rank b's IN, block r
  previous_rank   // rank r-1's IN, block 0
};
// The factor of bus bandwidth over algorithm bandwidth, of n ranks.
enum class BusFactor { one, share, twice_share };  // 1, (n-1)/n, 2(n-1)/n

struct Collective {
  const char* name;
  const char* alias;  // another name that users know, or ""
  bool reduces;
  bool rooted;
  bool has_in_place;
  uint32_t least_ranks;
  Blocks in, out;
  bool in_at_root_only, out_at_root_only;
  Origin origin;
  BusFactor bus;
  tutti_status (*run)(const Call& call);
  bool unequal = false;  // blocks may have different sizes

  uint64_t in_blocks(uint32_t nranks) const;
  uint64_t out_blocks(uint32_t nranks) const;
  bool has_in(uint32_t rank, uint32_t root) const { return in != Blocks::none && (!in_at_root_only || rank == root); }
  bool has_out(uint32_t rank, uint32_t root) const {
    return out != Blocks::none && (!out_at_root_only || rank == root) && (origin != Origin::prefix_before || rank > 0);
  }
  // Sends and receives have no stream.
  // The `count` argument of the call for a total of `bytes` bytes as nccl-tests counts them: rounded down so that
  // blocks are equal.
  uint64_t count_for(uint64_t bytes, uint64_t element_bytes, uint32_t nranks) const;
  // The total that the call really moves.
  uint64_t total_bytes(uint64_t count, uint64_t element_bytes, uint32_t nranks) const;
  double bus_factor(uint32_t nranks) const;
};

// All of them, in the order in which "all" runs them.
std::span<const Collective> all_collectives();
// By name or alias; NULL when unknown.
const Collective* find_collective(const std::string& name);
// "all_reduce, reduce_scatter, ...".
std::string collective_names();

}  // namespace perf
