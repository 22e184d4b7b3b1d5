// SPDX-License-Identifier: Apache-2.0
//
// Inputs and expected results. An input is a function of (seed, rank, index) and differs between any two ranks and
// indices as far as the type allows. For reductions the values are such that every partial result, in any order and
// grouping, is exactly representable: results are then compared bit for bit. The one exception is the average of
// floating types, where 2 units in the last place are allowed for the division. With Pattern::rounds inputs are such
// that sums round, and the result is the exact one, rounded once.
//
//   moves                 random bits, NaN patterns included
//   integers              random bits: wrapping arithmetic has one result in any order (products of odd values, which
//                         do not sink to zero)
//   floating sum, avg     integers so small that their sum cannot exceed 2^digits, times a power of two that all ranks
//                         share
//   floating prod         powers of two whose exponents cannot leave the range; one rank per index has a full mantissa
//   floating min, max     random mantissas and signs, moderate exponents
#pragma once

#include <cstdint>
#include <string>

namespace perf {

struct Pattern {
  uint64_t seed = 0;
  uint32_t dtype = 0;  // TUTTI_FLOAT32 ...
  uint32_t op = 0;     // TUTTI_SUM ...; 0: the collective only moves data
  uint32_t nranks = 1;
  bool rounds = false;  // sums and averages of 16-, 32- and 64-bit numbers: the exact result is rounded once
};

// The result of a check: the number of wrong elements, and the first of them.
struct Mistakes {
  uint64_t count = 0;
  uint64_t first_index = 0;
  std::string expected, got;
};

// Writes elements [first, first + count) of `rank`'s input to `data`.
void fill_input(const Pattern& pattern, uint32_t rank, uint64_t first, uint64_t count, void* data);

// Compares `data` with elements [first, first + count) of `rank`'s input, bit for bit. Indices in `mistakes` are
// counted from `position`, the place of data[0] in the buffer.
void check_moved(const Pattern& pattern, uint32_t rank, uint64_t first, uint64_t count, const void* data,
                 uint64_t position, Mistakes* mistakes);

// Compares `data` with the reduction over the first `ranks` ranks of elements [first, first + count) of their inputs.
void check_reduced(const Pattern& pattern, uint32_t ranks, uint64_t first, uint64_t count, const void* data,
                   uint64_t position, Mistakes* mistakes);

}  // namespace perf
