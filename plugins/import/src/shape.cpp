// SPDX-License-Identifier: Apache-2.0
#include "shape.hpp"

#include <tutti/plugin/algorithm.h>

#include <utility>

namespace tutti::plans {

uint32_t Shape::collective_from(std::string_view name) {
  constexpr std::pair<std::string_view, uint32_t> names[] = {{"allreduce", TUTTI_ALL_REDUCE},
                                                             {"allgather", TUTTI_ALL_GATHER},
                                                             {"reducescatter", TUTTI_REDUCE_SCATTER},
                                                             {"reduce_scatter", TUTTI_REDUCE_SCATTER},
                                                             {"alltoall", TUTTI_ALL_TO_ALL},
                                                             {"broadcast", TUTTI_BROADCAST},
                                                             {"reduce", TUTTI_REDUCE},
                                                             {"gather", TUTTI_GATHER},
                                                             {"scatter", TUTTI_SCATTER}};
  for (const auto& [known, collective] : names)
    if (known == name) return collective;
  return 0;
}

bool Shape::reducing() const {
  return collective == TUTTI_ALL_REDUCE || collective == TUTTI_REDUCE || collective == TUTTI_REDUCE_SCATTER;
}
bool Shape::rooted() const {
  return collective == TUTTI_BROADCAST || collective == TUTTI_REDUCE || collective == TUTTI_GATHER ||
         collective == TUTTI_SCATTER;
}
uint32_t Shape::in_blocks() const {
  return collective == TUTTI_SCATTER || collective == TUTTI_REDUCE_SCATTER || collective == TUTTI_ALL_TO_ALL ? ranks
                                                                                                             : 1;
}
uint32_t Shape::out_blocks() const {
  return collective == TUTTI_GATHER || collective == TUTTI_ALL_GATHER || collective == TUTTI_ALL_TO_ALL ? ranks : 1;
}
bool Shape::has_in(uint32_t rank, uint32_t root) const {
  return rank == root || (collective != TUTTI_BROADCAST && collective != TUTTI_SCATTER);
}
bool Shape::has_out(uint32_t rank, uint32_t root) const {
  return rank == root || (collective != TUTTI_REDUCE && collective != TUTTI_GATHER);
}

uint32_t Shape::in_of_out(uint32_t rank, uint32_t chunk) const {
  if (in_blocks() == out_blocks()) return chunk;
  if (in_blocks() > out_blocks()) return rank * pieces + chunk;
  return chunk / pieces == rank ? chunk % pieces : none;
}

uint32_t Shape::out_of_in(uint32_t rank, uint32_t chunk) const {
  if (in_blocks() == out_blocks()) return chunk;
  if (in_blocks() < out_blocks()) return rank * pieces + chunk;
  return chunk / pieces == rank ? chunk % pieces : none;
}

Shape::Result Shape::result(uint32_t rank, uint32_t chunk, uint32_t root) const {
  const uint32_t block = chunk / pieces, piece = chunk % pieces;
  switch (collective) {
    case TUTTI_BROADCAST:
      return {chunk, root};
    case TUTTI_GATHER:
    case TUTTI_ALL_GATHER:
      return {piece, block};
    case TUTTI_SCATTER:
      return {rank * pieces + piece, root};
    case TUTTI_ALL_TO_ALL:
      return {rank * pieces + piece, block};
    case TUTTI_REDUCE_SCATTER:
      return {rank * pieces + piece, none};
    default:
      return {chunk, none};
  }
}

}  // namespace tutti::plans
