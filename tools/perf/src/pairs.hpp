// SPDX-License-Identifier: Apache-2.0
//
// Pairs of a value and an index, for minloc and maxloc. Indices are any numbers; at one element in three all ranks have
// the same value, so that the lowest index decides.
#pragma once

#include <tutti/plugin/types.h>

#include <cstdint>

#include "element.hpp"

namespace perf {

// `Values`, `Indices`: the sources of the parts.
template <typename Pair, typename Values, typename Indices, uint32_t kOp>
class PairSource {
 public:
  static constexpr bool rounds = false;

  template <typename Pattern>
  explicit PairSource(const Pattern& pattern) : values_(pattern), indices_(pattern) {}
  uint64_t index_hash(uint64_t index) const { return values_.index_hash(index); }

  Pair input(uint64_t index_hash, uint32_t rank) const {
    const bool same = kOp != 0 && (index_hash >> 20) % 3 == 0;
    return {values_.input(index_hash, same ? 0 : rank), indices_.input(~index_hash, rank)};
  }

  Pair expected(uint64_t index_hash, uint32_t ranks) const {
    Pair best = input(index_hash, 0);
    for (uint32_t rank = 1; rank < ranks; ++rank) {
      const Pair next = input(index_hash, rank);
      const bool better = kOp == TUTTI_MINLOC ? next.value < best.value : next.value > best.value;
      if (better || (next.value == best.value && next.index < best.index)) best = next;
    }
    return best;
  }

 private:
  Values values_;
  Indices indices_;
};

}  // namespace perf
