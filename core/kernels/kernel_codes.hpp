// SPDX-License-Identifier: Apache-2.0
//
// Kernels of the wire formats (codec.hpp): float32 to codes and back, and sums of blocks with scales. Included by
// kernel_loops.hpp.
#pragma once

#include "kernels/kernel_table.hpp"
#include "kernels/kernel_vectors.hpp"

namespace tutti::core {
namespace {

// Numbers of a vector of float32, and vectors of a block.
constexpr int float_lanes = vector_bytes / static_cast<int>(sizeof(float));
constexpr int block_vectors = CodeKernels::block_numbers / float_lanes;
using FloatVector = Single<float_lanes>;
using FloatBits = Word<float_lanes>;
using BlockCode = Float8<3, true>;

// Calls body(first, how many) for vectors of numbers, the last of which may be short.
template <typename Body>
TUTTI_INLINE void for_vectors(uint64_t count, const Body& body) {
  uint64_t i = 0;
#pragma GCC unroll 2
  for (; i + float_lanes <= count; i += float_lanes) body(i, float_lanes);
  if (i < count) body(i, count - i);
}

template <typename E>
void encode_numbers(const float* from, uint64_t count, unsigned char* to) {
  for_vectors(
      count, [=](uint64_t i, uint64_t some) __attribute__((always_inline)) {
        FloatVector values{};
        __builtin_memcpy(&values, from + i, some * sizeof(float));
        const auto codes = E::template narrow<float_lanes>(values);
        __builtin_memcpy(to + i * sizeof(uint16_t), &codes, some * sizeof(uint16_t));
      });
}
template <typename E>
void decode_numbers(const unsigned char* from, uint64_t count, float* to) {
  for_vectors(
      count, [=](uint64_t i, uint64_t some) __attribute__((always_inline)) {
        Vector<uint16_t, float_lanes> codes{};
        __builtin_memcpy(&codes, from + i * sizeof(uint16_t), some * sizeof(uint16_t));
        const FloatVector values = E::template widen<float_lanes>(codes);
        __builtin_memcpy(to + i, &values, some * sizeof(float));
      });
}

// The numbers of one block.
struct Block {
  FloatVector part[block_vectors];
};

template <int N>
TUTTI_INLINE uint32_t largest_of(Word<N> v) {
  if constexpr (N > 4) {
    Word<N / 2> half[2];
    __builtin_memcpy(half, &v, sizeof v);
    return largest_of<N / 2>((SignedWord<N / 2>)half[0] > (SignedWord<N / 2>)half[1] ? half[0] : half[1]);
  }
  uint32_t largest = 0;
  for (int i = 0; i < N; ++i) largest = v[i] > largest ? v[i] : largest;
  return largest;
}

// e + 127 of the block's scale 2^e.
TUTTI_INLINE uint32_t scale_of(const Block& block) {
  FloatBits most{};
  for (const FloatVector part : block.part) {
    FloatBits size = (FloatBits)part & 0x7fffffffu;
    size = (SignedWord<float_lanes>)size < 0x7f800000 ? size : FloatBits{};
    most = (SignedWord<float_lanes>)size > (SignedWord<float_lanes>)most ? size : most;
  }
  const uint32_t largest = largest_of<float_lanes>(most);
  // 448 is 1.75 * 2^8.
  const uint32_t exponent = (largest >> 23) + ((largest & 0x7fffffu) > 0x600000u ? 1 : 0);
  return exponent < 9 ? 1 : exponent - 8;
}

TUTTI_INLINE FloatVector power_of_two(uint32_t biased) {
  return FloatVector{} + __builtin_bit_cast(float, biased << 23);
}

TUTTI_INLINE void encode_block(const Block& block, unsigned char* to) {
  const uint32_t scale = scale_of(block);
  const FloatVector factor = power_of_two(2 * 127 - scale);
  for (int i = 0; i < block_vectors; ++i) {
    const auto codes = BlockCode::narrow<float_lanes>(block.part[i] * factor);
    __builtin_memcpy(to + i * float_lanes, &codes, sizeof codes);
  }
  to[CodeKernels::block_numbers] = static_cast<unsigned char>(scale);
}
TUTTI_INLINE FloatVector decoded_part(const unsigned char* from, int part) {
  Vector<uint8_t, float_lanes> codes;
  __builtin_memcpy(&codes, from + part * float_lanes, sizeof codes);
  return BlockCode::widen<float_lanes>(codes) * power_of_two(from[CodeKernels::block_numbers]);
}

// The last block may lack numbers: they count as 0.
void encode_blocks(const float* from, uint64_t count, unsigned char* to) {
  Block block;
  for (; count >= CodeKernels::block_numbers; count -= CodeKernels::block_numbers) {
    __builtin_memcpy(&block, from, sizeof block);
    encode_block(block, to);
    from += CodeKernels::block_numbers;
    to += CodeKernels::block_bytes;
  }
  if (!count) return;
  block = {};
  __builtin_memcpy(&block, from, count * sizeof(float));
  encode_block(block, to);
}
void decode_blocks(const unsigned char* from, uint64_t count, float* to) {
  Block block;
  while (count) {
    for (int i = 0; i < block_vectors; ++i) block.part[i] = decoded_part(from, i);
    const uint64_t some = count < CodeKernels::block_numbers ? count : CodeKernels::block_numbers;
    __builtin_memcpy(to, &block, some * sizeof(float));
    from += CodeKernels::block_bytes;
    to += some;
    count -= some;
  }
}

// A sum of blocks, in float32 and in the order of the sources, divided and rounded once. An element is a block.
void sum_blocks(const Reduction& r) {
  if (r.nsrcs == 1 && r.divisor == 0) return reduce_by_copy(r, CodeKernels::block_bytes);
  for (uint64_t b = 0; b < r.count; ++b) {
    const uint64_t at = b * CodeKernels::block_bytes;
    Block sum;
    for (int i = 0; i < block_vectors; ++i) {
      FloatVector part = decoded_part(static_cast<const unsigned char*>(r.srcs[0]) + at, i);
      for (uint32_t k = 1; k < r.nsrcs; ++k)
        part = part + decoded_part(static_cast<const unsigned char*>(r.srcs[k]) + at, i);
      sum.part[i] = r.divisor ? part / static_cast<float>(r.divisor) : part;
    }
    for (uint32_t k = 0; k < r.ndsts; ++k) encode_block(sum, static_cast<unsigned char*>(r.dsts[k]) + at);
  }
}

}  // namespace
}  // namespace tutti::core
