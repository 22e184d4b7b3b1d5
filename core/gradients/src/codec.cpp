// SPDX-License-Identifier: Apache-2.0
//
// Plain loops over tutti's own conversions, which the compiler makes vectors of (the file is compiled with -O3 and
// without trapping arithmetic). Each loop is instantiated twice: for every processor, and for those with AVX2.
#include "codec.hpp"

#include <tutti/gradients.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <tutti/elements.hpp>

namespace tutti::gradients {
namespace {

constexpr uint32_t infinity_bits = 0x7f800000u, sign_bit = 0x80000000u;
constexpr uint32_t bias = 127;

template <typename Number, typename Code>
[[gnu::always_inline]] inline void encode_numbers(const float* __restrict from, Code* __restrict to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = Number(from[i]).bits();
}
template <typename Number, typename Code>
[[gnu::always_inline]] inline void decode_numbers(const Code* __restrict from, float* __restrict to, size_t n) {
  for (size_t i = 0; i < n; ++i) to[i] = Number::from_bits(from[i]);
}

// e + 127 of the block's scale 2^e.
[[gnu::always_inline]] inline uint8_t scale_of(const float* __restrict from, size_t n) {
  uint32_t largest = 0;
  for (size_t i = 0; i < n; ++i) {
    const uint32_t size = std::bit_cast<uint32_t>(from[i]) & ~sign_bit;
    largest = std::max(largest, size < infinity_bits ? size : 0);
  }
  // 448 is 1.75 * 2^8.
  const uint32_t exponent = (largest >> 23) + ((largest & 0x7fffffu) > 0x600000u ? 1 : 0);
  return static_cast<uint8_t>(exponent < 9 ? 1 : exponent - 8);
}

[[gnu::always_inline]] inline void encode_block(const float* __restrict from, uint8_t* __restrict to, size_t n,
                                                uint8_t scale) {
  const float factor = std::bit_cast<float>((2 * bias - scale) << 23);
  float scaled[block_numbers];
  for (size_t i = 0; i < n; ++i) scaled[i] = from[i] * factor;
  encode_numbers<float8_e4m3>(scaled, to, n);
}
[[gnu::always_inline]] inline void decode_block(const uint8_t* __restrict from, float* __restrict to, size_t n,
                                                uint8_t scale) {
  const float factor = std::bit_cast<float>(uint32_t{scale} << 23);
  float scaled[block_numbers];
  decode_numbers<float8_e4m3>(from, scaled, n);
  for (size_t i = 0; i < n; ++i) to[i] = scaled[i] * factor;
}

[[gnu::always_inline]] inline void encode_blocks(const float* from, uint8_t* codes, uint8_t* scales, size_t n) {
  for (size_t i = 0; i < n; i += block_numbers, ++scales) {
    const size_t some = std::min(block_numbers, n - i);
    *scales = scale_of(from + i, some);
    // A length that the compiler knows is a few instructions.
    if (some == block_numbers)
      encode_block(from + i, codes + i, block_numbers, *scales);
    else
      encode_block(from + i, codes + i, some, *scales);
  }
}
[[gnu::always_inline]] inline void decode_blocks(const uint8_t* codes, const uint8_t* scales, float* to, size_t n) {
  for (size_t i = 0; i < n; i += block_numbers, ++scales) {
    const size_t some = std::min(block_numbers, n - i);
    if (some == block_numbers)
      decode_block(codes + i, to + i, block_numbers, *scales);
    else
      decode_block(codes + i, to + i, some, *scales);
  }
}

// Codes of `wire` and scales, for one instruction set or another.
[[gnu::always_inline]] inline void encode_any(uint32_t wire, const float* from, uint8_t* codes, uint8_t* scales,
                                              size_t n) {
  if (wire == TUTTI_WIRE_FLOAT16)
    encode_numbers<float16>(from, reinterpret_cast<uint16_t*>(codes), n);
  else if (wire == TUTTI_WIRE_BFLOAT16)
    encode_numbers<bfloat16>(from, reinterpret_cast<uint16_t*>(codes), n);
  else
    encode_blocks(from, codes, scales, n);
}
[[gnu::always_inline]] inline void decode_any(uint32_t wire, const uint8_t* codes, const uint8_t* scales, float* to,
                                              size_t n) {
  if (wire == TUTTI_WIRE_FLOAT16)
    decode_numbers<float16>(reinterpret_cast<const uint16_t*>(codes), to, n);
  else if (wire == TUTTI_WIRE_BFLOAT16)
    decode_numbers<bfloat16>(reinterpret_cast<const uint16_t*>(codes), to, n);
  else
    decode_blocks(codes, scales, to, n);
}

using Encode = void (*)(uint32_t, const float*, uint8_t*, uint8_t*, size_t);
using Decode = void (*)(uint32_t, const uint8_t*, const uint8_t*, float*, size_t);
void encode_everywhere(uint32_t wire, const float* from, uint8_t* codes, uint8_t* scales, size_t n) {
  encode_any(wire, from, codes, scales, n);
}
void decode_everywhere(uint32_t wire, const uint8_t* codes, const uint8_t* scales, float* to, size_t n) {
  decode_any(wire, codes, scales, to, n);
}
#if defined(__x86_64__)
[[gnu::target("avx2")]] void encode_avx2(uint32_t wire, const float* from, uint8_t* codes, uint8_t* scales, size_t n) {
  encode_any(wire, from, codes, scales, n);
}
[[gnu::target("avx2")]] void decode_avx2(uint32_t wire, const uint8_t* codes, const uint8_t* scales, float* to,
                                         size_t n) {
  decode_any(wire, codes, scales, to, n);
}
bool has_avx2() { return __builtin_cpu_supports("avx2"); }
#else
constexpr Encode encode_avx2 = encode_everywhere;
constexpr Decode decode_avx2 = decode_everywhere;
bool has_avx2() { return false; }
#endif

}  // namespace

Codec::Codec(uint32_t wire, bool plainly) : wire_(wire), fast_(!plainly && has_avx2()) {}

size_t Codec::bytes(size_t count) const {
  return wire_ == TUTTI_WIRE_FLOAT8 ? count + (count + block_numbers - 1) / block_numbers : 2 * count;
}

void Codec::encode(std::span<const float> values, size_t first, size_t count, uint8_t* codes) const {
  uint8_t* const begin = codes + (wire_ == TUTTI_WIRE_FLOAT8 ? first : 2 * first);
  (fast_ ? encode_avx2 : encode_everywhere)(wire_, values.data(), begin, codes + count + first / block_numbers,
                                            values.size());
}

void Codec::decode(const uint8_t* codes, size_t first, size_t count, std::span<float> values) const {
  const uint8_t* const begin = codes + (wire_ == TUTTI_WIRE_FLOAT8 ? first : 2 * first);
  (fast_ ? decode_avx2 : decode_everywhere)(wire_, begin, codes + count + first / block_numbers, values.data(),
                                            values.size());
}

void add(std::span<float> left, std::span<const float> right) {
  float* __restrict to = left.data();
  for (size_t i = 0; i < left.size(); ++i) to[i] += right[i];
}

void subtract_finite(std::span<float> left, std::span<const float> right) {
  float* __restrict to = left.data();
  for (size_t i = 0; i < left.size(); ++i) {
    const float rest = to[i] - right[i];
    to[i] = (std::bit_cast<uint32_t>(rest) & ~sign_bit) < infinity_bits ? rest : 0.0f;
  }
}

}  // namespace tutti::gradients
