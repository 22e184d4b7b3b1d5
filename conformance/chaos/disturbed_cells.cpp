// SPDX-License-Identifier: Apache-2.0
#include "chaos/disturbed_cells.hpp"

#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <iterator>

#include "matrix/members.hpp"

namespace tutti::conformance {

std::vector<Cell> disturbed_cells(const std::string& mix, uint32_t nranks) {
  constexpr uint64_t counts[] = {1, 1000, 40'001, 7, 5000};
  constexpr const char* types[] = {"float32", "int32", "float64", "uint8"};
  constexpr InPlace places[] = {InPlace::out, InPlace::some, InPlace::in};
  constexpr Calls calls[] = {Calls::block, Calls::request, Calls::overlap};
  std::vector<Cell> cells;
  size_t turn = 0;
  for (const tutti_algorithm* algorithm : list_algorithms())
    for (uint32_t collective = TUTTI_BROADCAST; collective <= last_collective; ++collective) {
      if (!(algorithm->collectives >> collective & 1)) continue;
      const uint32_t root = rooted(collective) ? nranks - 1 : 0;
      const Problem problem{collective, nranks, root, matrix_lanes, {}, {}};
      const tutti_query query = make_query(problem, 0);
      const bool able = algorithm->supports(algorithm->self, &query) == TUTTI_OK;
      take_plugin_error();
      if (!able) continue;
      Cell cell;
      cell.operation = {collective, nranks, root, collective == TUTTI_BARRIER ? 0 : counts[turn % std::size(counts)]};
      cell.algorithm = algorithm->name;
      cell.mix = mix;
      cell.type = element_type(types[turn % std::size(types)]);
      cell.op = reduces(collective) ? (turn % 2 ? TUTTI_SUM : TUTTI_MAX) : 0;
      cell.place = cell.may_be_in_place() ? places[turn % std::size(places)] : InPlace::out;
      cell.memory = turn % 2 ? Memory::some : Memory::heap;
      cell.calls = calls[turn / 2 % std::size(calls)];
      cells.push_back(cell);
      ++turn;
    }
  return cells;
}

}  // namespace tutti::conformance
