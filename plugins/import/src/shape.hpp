// SPDX-License-Identifier: Apache-2.0
//
// The collectives that plans have: how many chunks a rank's buffers have, what they hold at first and must hold at the
// end, and which chunks are one in place (the table of tutti/plugin/algorithm.h).
#pragma once

#include <cstdint>
#include <string_view>

namespace tutti::plans {

struct Shape {
  uint32_t collective;
  uint32_t ranks;
  uint32_t pieces;

  // From the names that files use ("allreduce", "reduce_scatter"); 0: no collective of Tutti.
  static uint32_t collective_from(std::string_view name);

  bool reducing() const;
  bool rooted() const;
  // Blocks of the buffers as a file counts them: those of ranks that have none in Tutti included.
  uint32_t in_blocks() const;
  uint32_t out_blocks() const;
  uint32_t in_chunks() const { return in_blocks() * pieces; }
  uint32_t out_chunks() const { return out_blocks() * pieces; }
  bool has_in(uint32_t rank, uint32_t root) const;
  bool has_out(uint32_t rank, uint32_t root) const;
  // In place: the chunk of the one buffer that is also chunk `chunk` of the other, at `rank`; none where it has none.
  static constexpr uint32_t none = UINT32_MAX;
  uint32_t in_of_out(uint32_t rank, uint32_t chunk) const;
  uint32_t out_of_in(uint32_t rank, uint32_t chunk) const;
  // The final content of a chunk of the output: the input's chunk of each rank that contributes, and that rank if there
  // is only one.
  struct Result {
    uint32_t chunk;
    uint32_t rank;  // none: all ranks
  };
  Result result(uint32_t rank, uint32_t chunk, uint32_t root) const;
};

}  // namespace tutti::plans
