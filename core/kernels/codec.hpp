// SPDX-License-Identifier: Apache-2.0
//
// The wire formats: float32 as codes of 16 bits, or of 8 bits in blocks with a scale.
//
// Rounding is to nearest, ties to even, the same bits on every processor. A float8 block is 32 codes of float8_e4m3 and
// a scale, a power of two 2^e with -126 <= e <= 120 (stored as e + 127): the least with which no finite number of the
// block exceeds 448, the format's largest. So a code never overflows. Scaling is exact; only the code rounds. NaN and
// infinities become NaN and leave the scale of their block alone. A block of zeros has the least scale. Numbers that
// the last block lacks count as 0.
//
// A unit is what cannot be cut: a code of 16 bits, or a block, 33 bytes: 32 codes, then the scale.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/kernel_table.hpp"

namespace tutti::core {

// For TUTTI_WIRE_FLOAT16 ...
inline const char* wire_name(uint32_t wire) {
  return wire == TUTTI_WIRE_FLOAT8 ? "float8" : wire == TUTTI_WIRE_BFLOAT16 ? "bfloat16" : "float16";
}
constexpr bool is_in_blocks(uint32_t wire) { return wire == TUTTI_WIRE_FLOAT8; }
constexpr uint64_t unit_numbers(uint32_t wire) { return is_in_blocks(wire) ? CodeKernels::block_numbers : 1; }
constexpr uint32_t unit_bytes(uint32_t wire) { return is_in_blocks(wire) ? uint32_t{CodeKernels::block_bytes} : 2; }
// The units of so many numbers that lie together.
constexpr uint64_t units_of(uint32_t wire, uint64_t count) {
  return is_in_blocks(wire) ? count / CodeKernels::block_numbers + (count % CodeKernels::block_numbers != 0) : count;
}

class Codec {
 public:
  // `kernels`: for tests, those of one instruction set.
  explicit Codec(uint32_t wire, const KernelTable& kernels = best_kernels());

  size_t bytes(size_t count) const { return units_of(wire_, count) * unit_bytes(wire_); }
  // Numbers that lie together, to and from bytes(their count) of codes. Codes need no alignment.
  void encode(std::span<const float> values, void* codes) const;
  void decode(const void* codes, std::span<float> values) const;

 private:
  uint32_t wire_;
  const CodeKernels& kernels_;
};

// Reduces codes, a unit as an element: a left fold of float32 with one rounding. Of blocks there are only sums.
// nullptr: not defined.
ReduceFunction find_code_reduction(uint32_t wire, uint32_t op);

// sum = the sources of `codes` added in float32, in their order, and divided by its divisor: no more is rounded. Nothing
// else of `codes` is looked at.
void sum_codes(uint32_t wire, const Reduction& codes, std::span<float> sum);

}  // namespace tutti::core
