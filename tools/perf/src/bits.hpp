// SPDX-License-Identifier: Apache-2.0
//
// Inputs and results of the operators on bits (band, bor, bxor) and truth values (land, lor, lxor).
//
// Xor shows whatever is missing or doubled, so every rank has any number. And and or forget: at three of four indices
// one rank, which turns, decides, and the others are neutral; at the fourth all have any number.
#pragma once

#include <tutti/plugin/types.h>

#include <type_traits>

#include "element.hpp"

namespace perf {

constexpr bool combines_bits(uint32_t op) { return op >= TUTTI_BAND && op <= TUTTI_LXOR; }

// T is an integer type, or Truth.
template <typename T, uint32_t kOp>
class BitSource {
 public:
  static constexpr bool rounds = false;
  static constexpr bool truth = std::is_same_v<T, Truth> || kOp >= TUTTI_LAND;
  static constexpr bool is_xor = kOp == TUTTI_BXOR || kOp == TUTTI_LXOR;
  static constexpr bool is_and = kOp == TUTTI_BAND || kOp == TUTTI_LAND;
  using Bits = BitsOf<T>;

  explicit BitSource(uint32_t nranks) : nranks_(nranks) {}

  // `own`: the generator of the rank at the index.
  T input(uint64_t index_hash, uint64_t own, uint32_t rank) const {
    const bool free = is_xor || index_hash % 4 == 0;
    const bool decides = (rank + (index_hash >> 8)) % nranks_ == 0;
    if constexpr (truth) {
      const auto any = static_cast<Bits>(own >> 1);  // not 0
      const bool value = free || decides ? own % 2 != 0 : is_and;
      return std::bit_cast<T>(value ? static_cast<Bits>(any ? any : 1) : Bits{0});
    } else {
      const Bits neutral = is_and ? static_cast<Bits>(~Bits{0}) : Bits{0};
      return std::bit_cast<T>(free || decides ? static_cast<Bits>(own) : neutral);
    }
  }

  static T combine(T a, T b) {
    Bits x = std::bit_cast<Bits>(a), y = std::bit_cast<Bits>(b);
    if constexpr (truth) x = x != 0, y = y != 0;
    return std::bit_cast<T>(static_cast<Bits>(is_and ? x & y : is_xor ? x ^ y : x | y));
  }

 private:
  uint32_t nranks_;
};

}  // namespace perf
