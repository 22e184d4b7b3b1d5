// SPDX-License-Identifier: Apache-2.0
//
// The contents of a chunk, as an expression over the ranks' inputs. Expressions are hash-consed: equal ones have equal
// numbers, so that comparing trees is comparing numbers.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "step_graph.hpp"

namespace tutti {

class Expressions {
 public:
  using Id = uint32_t;
  static constexpr uint32_t none = 0xffffffffu;

  // Leaves are the chunks of IN of `nranks` ranks, `blocks` blocks of `pieces` pieces each.
  Expressions(uint32_t nranks, uint32_t blocks, uint32_t pieces);

  Id leaf(uint32_t rank, uint32_t chunk) const { return Id(uint64_t{rank} * chunks_ + chunk); }
  bool is_leaf(Id id) const { return id < leaves_; }
  uint32_t leaf_rank(Id id) const { return id / chunks_; }
  uint32_t leaf_chunk(Id id) const { return id % chunks_; }

  // A left fold over `operands` (at least two) with one rounding.
  Id reduce(std::span<const Id> operands);

  // The same for two trees that differ by swaps of commuting operands only. (Of a fold with one rounding only the first
  // two commute.)
  Id canonical(Id id) const { return is_leaf(id) ? id : reductions_[id - leaves_].canonical; }
  // Are its operands, read from left to right, those of ranks a, a+1, ..., b?
  bool in_rank_order(Id id) const { return is_leaf(id) || reductions_[id - leaves_].in_order; }
  // Is it the canonical tree (Proof::canonical) over `count` ranks from `first` on?
  bool is_canonical(Id id, uint32_t first, uint32_t count) const;
  // Is it an input, or one reduction of inputs alone?
  bool is_flat(Id id) const { return is_leaf(id) || reductions_[id - leaves_].flat; }
  // The chunk of IN that its leftmost operand is.
  uint32_t first_chunk(Id id) const { return summary(id).chunk; }
  // Does it hold chunk `chunk` of each of the first `ranks` ranks exactly once, and nothing else?
  bool is_complete(Id id, uint32_t chunk, uint32_t ranks) const;
  // Why is_complete does not hold: "lacks ...".
  std::string explain_incomplete(Id id, uint32_t chunk, uint32_t ranks) const;
  // "in[3] of rank 2", or "a reduction of in[3]"
  std::string text(Id id) const;

 private:
  struct ReductionNode {
    uint32_t first_operand, operands;  // in operands_
    Id canonical;
    uint32_t chunk;         // which chunk of each rank's IN it adds up; `mixed` when it is not the same in all
    uint32_t low, high;     // ranks, where in_order
    uint32_t contributors;  // how many different ranks
    uint32_t twice;         // a rank that contributes more than once, or none
    bool in_order;
    bool others;  // mixed: chunk is one of several
    bool flat;
  };
  struct Summary {
    uint32_t chunk, low, high, contributors, twice;
    bool in_order, others;
  };
  Id cons(std::span<const Id> operands);
  Summary summary(Id id) const;
  bool contributes(Id id, uint32_t rank) const;
  // The first rank from `rank` on that contributes; nranks: there is none.
  uint32_t next_contributor(Id id, uint32_t rank) const;
  void grow_table();
  uint64_t hash(std::span<const Id> operands) const;
  std::span<const Id> operands_of(const ReductionNode& reduction) const {
    return {operands_.data() + reduction.first_operand, reduction.operands};
  }

  uint32_t nranks_, chunks_, leaves_, words_;
  std::vector<ReductionNode> reductions_;
  std::vector<Id> operands_;
  std::vector<uint64_t> bits_;  // words_ per reduction: the ranks that contribute
  std::vector<uint32_t> table_;
};

}  // namespace tutti
