// SPDX-License-Identifier: Apache-2.0
//
// Kernels for elements of two parts that are combined together: complex products, and values with
// their places. Included by kernel_loops.hpp.
#pragma once

#include "kernels/kernel_table.hpp"
#include "kernels/kernel_vectors.hpp"

namespace tutti::core {
namespace {

template <typename T>
TUTTI_INLINE T canonical_part(T v) {
  return v == v ? v : static_cast<T>(__builtin_nan(""));
}

// (a + bi) * (c + di) = (ac - bd) + (ad + bc)i, each operation rounded. Infinities get no treatment of their own.
template <typename T>
struct ComplexProd {
  struct ComplexParts {
    T real, imaginary;
  };
  using Value = ComplexParts;
  TUTTI_INLINE static Value combine(Value a, Value b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
  TUTTI_INLINE static Value finish(Value v) { return {canonical_part(v.real), canonical_part(v.imaginary)}; }
};

// minloc, or maxloc (kGreatest). The value is that of min or max: NaN if any is NaN, -0 before +0. The index is the
// lowest of the operands that have this value.
template <typename T, typename Index, bool kGreatest>
struct ExtremePlace {
  struct IndexedValue {
    T value;
    Index index;
  };
  using Value = IndexedValue;
  static_assert(sizeof(Value) == sizeof(T) + sizeof(Index));
  // Is a's value better than b's? Without branches: which one is better cannot be predicted.
  TUTTI_INLINE static bool beats(T a, T b) {
    const bool nan = (a != a) & (b == b), order = kGreatest ? a > b : a < b;
    const bool negative_a = __builtin_signbit(a), negative_b = __builtin_signbit(b);
    const bool zeros = (a == b) & (kGreatest ? negative_a < negative_b : negative_a > negative_b);
    return nan | order | zeros;
  }
  TUTTI_INLINE static Value combine(Value a, Value b) {
    return beats(a.value, b.value) | (!beats(b.value, a.value) & (a.index <= b.index)) ? a : b;
  }
  TUTTI_INLINE static Value finish(Value v) { return {canonical_part(v.value), v.index}; }
};

template <typename Op>
void reduce_parts(const Reduction& r) {
  using Value = typename Op::Value;
  if (r.nsrcs == 1) return reduce_by_copy(r, sizeof(Value));
  for (uint64_t i = 0; i < r.count; ++i) {
    const uint64_t at = i * sizeof(Value);
    Value sum, next;
    __builtin_memcpy(&sum, static_cast<const char*>(r.srcs[0]) + at, sizeof sum);
    for (uint32_t k = 1; k < r.nsrcs; ++k) {
      __builtin_memcpy(&next, static_cast<const char*>(r.srcs[k]) + at, sizeof next);
      sum = Op::combine(sum, next);
    }
    sum = Op::finish(sum);
    for (uint32_t k = 0; k < r.ndsts; ++k) __builtin_memcpy(static_cast<char*>(r.dsts[k]) + at, &sum, sizeof sum);
  }
}

}  // namespace
}  // namespace tutti::core
