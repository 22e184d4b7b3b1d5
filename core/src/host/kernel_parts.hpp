// SPDX-License-Identifier: Apache-2.0
//
// Kernels for elements of two parts that are combined together: complex products. Included by kernel_loops.hpp.
#pragma once

#include "host/kernel_table.hpp"
#include "host/kernel_vectors.hpp"

namespace tutti::core {
namespace {

template <typename T>
TUTTI_INLINE T canonical_part(T v) {
  return v == v ? v : static_cast<T>(__builtin_nan(""));
}

// (a + bi) * (c + di) = (ac - bd) + (ad + bc)i, each operation rounded. Infinities get no treatment of their own.
template <typename T>
struct ComplexProd {
  struct Value {
    T real, imaginary;
  };
  TUTTI_INLINE static Value combine(Value a, Value b) {
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  }
  TUTTI_INLINE static Value finish(Value v) { return {canonical_part(v.real), canonical_part(v.imaginary)}; }
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
