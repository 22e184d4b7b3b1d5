// SPDX-License-Identifier: Apache-2.0
//
// The wire formats: float32 as codes of 16 bits, or of 8 bits in blocks with a scale.
//
// Rounding is to nearest, ties to even, the same bits on every processor. A float8 block is 32 codes of float8_e4m3 and
// a scale, a power of two 2^e with -126 <= e <= 120 (stored as e + 127): the least with which no finite number of the
// block exceeds 448, the format's largest. So a code never overflows. Scaling is exact; only the code rounds. NaN and
// infinities become NaN and leave the scale of their block alone. A block of zeros has the least scale.
//
// `count` numbers are laid out as count codes, then, for float8, ceil(count / 32) scales. Codes of 16 bits are aligned
// to 2 bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace tutti::gradients {

constexpr size_t block_numbers = 32;

class Codec {
 public:
  // `wire`: TUTTI_WIRE_FLOAT16 ... . `plainly`: without vector instructions that not every processor has, for tests.
  explicit Codec(uint32_t wire, bool plainly = false);

  // Bytes of `count` codes with their scales.
  size_t bytes(size_t count) const;
  // Part [first, first + values.size()) of the `count` numbers at `codes`; `first` is a multiple of block_numbers.
  void encode(std::span<const float> values, size_t first, size_t count, uint8_t* codes) const;
  void decode(const uint8_t* codes, size_t first, size_t count, std::span<float> values) const;

 private:
  uint32_t wire_;
  bool fast_;
};

// left += right, element by element.
void add(std::span<float> left, std::span<const float> right);
// left -= right; 0 where that is no finite number.
void subtract_finite(std::span<float> left, std::span<const float> right);

}  // namespace tutti::gradients
