// SPDX-License-Identifier: Apache-2.0
//
// Complex numbers of two parts. Sums and averages are those of the parts. In products all numbers but one are real or
// imaginary, so that no order of multiplication rounds; the sign of a zero part depends on that order and is not
// compared.
#pragma once

#include <tutti/plugin/types.h>

#include <cstdint>

#include "element.hpp"

namespace perf {

// `Source`: of the parts.
template <typename Part, typename Source, uint32_t kOp>
class ComplexSource {
 public:
  static constexpr bool rounds = Source::rounds;

  template <typename Pattern>
  explicit ComplexSource(const Pattern& pattern)
      : real_(pattern), imaginary_(other(pattern)), nranks_(pattern.nranks) {}
  uint64_t index_hash(uint64_t index) const { return real_.index_hash(index); }

  Complex<Part> input(uint64_t index_hash, uint32_t rank) const {
    const Part a = real_.input(index_hash, rank), b = imaginary_.input(~index_hash, rank);
    if (kOp != TUTTI_PROD || (rank + (index_hash >> 8)) % nranks_ == 0) return {a, b};
    return b < 0 ? Complex<Part>{a, 0} : Complex<Part>{0, a};
  }

  Complex<Part> expected(uint64_t index_hash, uint32_t ranks) const {
    if constexpr (kOp != TUTTI_PROD) {
      return {real_.expected(index_hash, ranks), imaginary_.expected(~index_hash, ranks)};
    } else {
      Complex<Part> product = input(index_hash, 0);
      for (uint32_t rank = 1; rank < ranks; ++rank) {
        const Complex<Part> a = product, b = input(index_hash, rank);
        product = {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
      }
      return product;
    }
  }

 private:
  template <typename Pattern>
  static Pattern other(Pattern pattern) {
    pattern.seed ^= 0x5bd1e9955bd1e995u;
    return pattern;
  }
  Source real_, imaginary_;
  uint32_t nranks_;
};

}  // namespace perf
