// SPDX-License-Identifier: Apache-2.0
//
// The 8-bit floats of the Open Compute Project (OCP 8-bit Floating Point Specification, revision 1.0): storage, 1 byte.
// Arithmetic is in float: a float8 converts to one exactly. From float it rounds to nearest, ties to even; a number
// that rounds beyond the largest becomes infinity, and NaN where the type has none (the specification's non-saturating
// mode), so that an overflow shows.
#pragma once

#include <bit>
#include <cstdint>

namespace tutti {
namespace detail {

// One sign bit, `kFraction` stored bits of the fraction, the rest is the exponent. kFinite: the greatest exponent is
// that of numbers too; its last pattern is NaN.
template <int kFraction, bool kFinite>
class Float8 {
 public:
  Float8() = default;
  constexpr explicit Float8(float value) : bits_(rounded(std::bit_cast<uint32_t>(value))) {}
  static constexpr Float8 from_bits(uint8_t bits) {
    Float8 result;
    result.bits_ = bits;
    return result;
  }
  constexpr uint8_t bits() const { return bits_; }
  constexpr operator float() const {
    const uint32_t sign = (bits_ & 0x80u) << 24, size = bits_ & 0x7fu;
    if (size < 1u << kFraction) return (sign ? -unit : unit) * static_cast<float>(size);
    if (kFinite && size == nan) return std::bit_cast<float>(sign | 0x7fc00000u);
    const uint32_t wide = (size << (23 - kFraction)) + (rebias << 23);
    return std::bit_cast<float>(sign | (!kFinite && size >= beyond ? wide | 0x7f800000u : wide));
  }

 private:
  static constexpr uint32_t bias = (1u << (6 - kFraction)) - 1;
  static constexpr uint32_t rebias = 127 - bias;
  static constexpr float unit = std::bit_cast<float>((rebias + 1 - kFraction) << 23);  // the least positive number
  static constexpr uint32_t beyond = kFinite ? 0x7fu : 0x80u - (1u << kFraction);
  static constexpr uint32_t nan = kFinite ? 0x7fu : beyond | 1u << (kFraction - 1);

  static constexpr uint8_t rounded(uint32_t bits) {
    const uint32_t sign = (bits >> 24) & 0x80u, size = bits & 0x7fffffffu;
    uint32_t result = 0;
    if (size > 0x7f800000u) {
      result = nan;
    } else if (size < (rebias + 1) << 23) {  // the sum rounds at a multiple of the unit
      constexpr uint32_t shift = (rebias + 1 - kFraction + 23) << 23;
      result = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + std::bit_cast<float>(shift)) - shift;
    } else {
      const uint32_t rebiased = size - (rebias << 23);
      result = (rebiased + (1u << (22 - kFraction)) - 1 + ((rebiased >> (23 - kFraction)) & 1u)) >> (23 - kFraction);
      if (result > beyond) result = beyond;
    }
    return static_cast<uint8_t>(sign | result);
  }
  uint8_t bits_ = 0;
};

}  // namespace detail

using float8_e4m3 = detail::Float8<3, true>;   // to 448, no infinities: PyTorch's float8_e4m3fn
using float8_e5m2 = detail::Float8<2, false>;  // to 57344, with infinities

}  // namespace tutti
