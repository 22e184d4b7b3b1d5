// SPDX-License-Identifier: Apache-2.0
//
// The blocks of a call's buffers. They have `count` elements each; skewed ones, of collectives that take unequal
// blocks, grow from 2/(n+1) of that to 2n/(n+1), so that buffers of n blocks are as long either way.
#pragma once

#include <cstdint>
#include <vector>

#include "collectives.hpp"

namespace perf {

class BlockLayout {
 public:
  BlockLayout(const Collective& collective, uint32_t nranks, uint64_t count, bool skewed)
      : collective_(collective), nranks_(nranks), count_(count), skewed_(skewed && collective.unequal) {}

  // Block `block` of IN (`input`) or OUT of a rank.
  uint64_t elements(uint32_t rank, bool input, uint64_t block) const {
    if (!skewed_) return count_;
    const bool many = (input ? collective_.in : collective_.out) == Blocks::per_rank;
    const bool both = collective_.in == collective_.out;
    const uint64_t number = both ? (rank + block) % nranks_ : many ? block : rank;
    return 2 * count_ * (number + 1) / (nranks_ + 1);
  }
  uint64_t begin(uint32_t rank, bool input, uint64_t block) const {
    uint64_t sum = 0;
    for (uint64_t b = 0; b < block; ++b) sum += elements(rank, input, b);
    return sum;
  }
  uint64_t blocks(bool input) const { return input ? collective_.in_blocks(nranks_) : collective_.out_blocks(nranks_); }
  uint64_t total(uint32_t rank, bool input) const { return begin(rank, input, blocks(input)); }
  std::vector<uint64_t> counts(uint32_t rank, bool input) const {
    std::vector<uint64_t> list;
    for (uint64_t b = 0; b < blocks(input); ++b) list.push_back(elements(rank, input, b));
    return list;
  }

 private:
  const Collective& collective_;
  uint32_t nranks_;
  uint64_t count_;
  bool skewed_;
};

}  // namespace perf
