// SPDX-License-Identifier: Apache-2.0
//
// The host device's kernels: reduce n sources into one or two destinations, and copy.
//
// Results are exact functions of the inputs' bits: the same on every CPU path, for every alignment and vector width.
//  - dst = src0 op src1 op ..., a left fold in the accumulator type (float for the 8 and 16-bit floats, else the type
//    itself), optionally divided, with one rounding to nearest even at the end for those. Too large for
//    float8_e4m3, which has no infinity, is NaN.
//  - Complex numbers: sum and division by parts; (a + bi) * (c + di) = (ac - bd) + (ad + bc)i, each operation rounded.
//  - Integers wrap. An integer is divided with truncation toward zero.
//  - Logical operators give 0 or 1; on bool the operators on bits do so too.
//  - min and max: NaN if any operand is NaN; -0 < +0.
//  - A NaN that an operation produces or passes on is the type's positive quiet NaN without payload (0x7fc00000,
//  0x7e00,
//    ...), since which payload survives would depend on the instruction chosen. One source without divisor is a copy:
//    bits are kept.
// The floating-point environment must be the default one (round to nearest, denormals not flushed). Exact sums set it
// for themselves on x86-64.
//
// Threads: any; no state. Addresses need no alignment. A destination may be exactly one of the sources; apart from that
// nothing may overlap.
#pragma once

#include <tutti/plugin/types.h>

#include <cstdint>

namespace tutti::core {

struct UserOperator;

struct Reduction {
  void* dsts[2];   // ndsts destinations get the same bytes (a fused step forwards to the second)
  uint32_t ndsts;  // 1 or 2
  const void* const* srcs;
  uint32_t nsrcs;    // >= 1
  uint64_t count;    // elements; 0: nothing is touched
  uint64_t divisor;  // 0: none; else the fold is divided by it (avg's final step)
  // Write this destination past the caches. Whole aligned vectors are; edges, and a destination whose elements are not
  // aligned, are written as usual. The writes are ordered before every later store of this thread.
  bool streaming[2];
  // For operators of the application alone.
  const UserOperator* user = nullptr;
  uint32_t dtype = 0;
};
using ReduceFunction = void (*)(const Reduction&);

// Instead of an operator: a sum of contributions that their ranks have multiplied by factors of their own.
constexpr uint32_t op_premul_sum = 0xfffd;
// Is it, or an operator of the application's own?
constexpr bool is_of_application(uint32_t op) { return op >= op_premul_sum; }

// The kernel for TUTTI_FLOAT32 ..., TUTTI_SUM ... on this CPU; TUTTI_AVG and op_premul_sum give TUTTI_SUM's. nullptr:
// unknown type or operator, or one that is not defined for the type.
ReduceFunction find_reduction(uint32_t dtype, uint32_t op);

// Sums, and by the divisor averages, that are rounded once (exact_sum.hpp): the same bits for every order of the
// sources. nullptr: the type is not FLOAT16, BFLOAT16, FLOAT32 or FLOAT64. At most `most_exact_sources`, and a divisor
// of at most 2^26.
constexpr uint32_t most_exact_sources = 4096;
ReduceFunction find_exact_sum(uint32_t dtype);

// dst = src. dst may be exactly src; else they must not overlap. `streaming` as above.
void copy(void* dst, const void* src, uint64_t bytes, bool streaming);
// The same to two destinations; src is read from memory once.
void copy(void* dst0, bool streaming0, void* dst1, bool streaming1, const void* src, uint64_t bytes);

}  // namespace tutti::core
