// SPDX-License-Identifier: Apache-2.0
//
// The cells of all ranks while a plan is carried out: what they hold, who accessed them, and the places that a schedule
// has for them (trace.hpp).
#pragma once

#include <map>
#include <utility>
#include <vector>

#include "clocks.hpp"
#include "plan.hpp"
#include "trace.hpp"
#include "values.hpp"

namespace tutti::plans {

class Memory {
 public:
  // An access to a cell: by which thread block, at which time of its clock, in which operation.
  struct Access {
    uint32_t thread = nobody, when = 0, op = 0;
  };
  struct Cell {
    Values::Id value = Values::none;
    Place place;
    Access write;
    std::vector<Access> reads;  // since then
    Clocks::Snapshot packets;   // it was written as packets; what their writer knew
  };

  // With `everywhere` all ranks have an input, also those that have none in a collective with a root.
  Memory(const Plan& plan, const Carried& how, bool everywhere, Values& values, const Clocks& clocks, Trace& trace);

  // Cell i of some of a rank. The accesses of operation `op` of thread block `thread`; `end` is the end of a node.
  const Cell& at(uint32_t rank, Cells cells, uint32_t i) const { return cells_[rank][cell_of(rank, cells, i)]; }
  const Cell& read(uint32_t thread, uint32_t op, uint32_t rank, Cells cells, uint32_t i, uint32_t end);
  // Returns the place of what is written.
  Place write(uint32_t thread, uint32_t op, uint32_t rank, Cells cells, uint32_t i, Values::Id value, uint32_t end);
  // An operation may write the very cells that it reads, but not others of them. Returns true if it does.
  bool check_overlap(const Thread& thread, const Op& op, Cells src) const;
  // Throws unless the outputs hold what the collective demands; notes what is kept of the input.
  void judge();
  uint32_t guess_root() const;

 private:
  // The accesses to a place that later ones must follow.
  struct Use {
    uint32_t writer = nobody;  // an end
    std::vector<uint32_t> readers;
  };

  uint32_t cell_of(uint32_t rank, Cells cells, uint32_t i) const;
  uint32_t out_of_cell(uint32_t rank, uint32_t cell) const;
  uint64_t key(uint32_t rank, Place place) const;
  void note_input(uint32_t rank, uint32_t in);
  void check_order(uint32_t thread, uint32_t op, Cells cells, uint32_t i, const Access& earlier,
                   const char* does) const;
  bool is_known(uint32_t rank, const Access& access) const;
  void judge_chunk(uint32_t rank, uint32_t chunk, const Cell& cell) const;

  const Plan& plan_;
  const Carried how_;
  Values& values_;
  const Clocks& clocks_;
  Trace& trace_;
  std::vector<std::vector<Cell>> cells_;       // by rank
  std::vector<std::vector<bool>> spoiled_;     // by rank and chunk of the output: see note_input()
  std::vector<Values::Id> first_input_;        // by rank: the value of the input's first chunk at the beginning
  std::vector<std::map<uint64_t, Use>> uses_;  // by rank
  std::vector<std::map<std::pair<uint32_t, uint32_t>, uint32_t>> clones_;  // by rank: (cell, piece) -> scratch
};

}  // namespace tutti::plans
