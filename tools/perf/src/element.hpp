// SPDX-License-Identifier: Apache-2.0
//
// The element types of the benchmark: what double precision needs to know of each to make and read exact values.
#pragma once

#include <tutti/plugin/types.h>

#include <bit>
#include <cmath>
#include <concepts>
#include <cstdint>
#include <limits>
#include <type_traits>

namespace perf {

// A floating-point number of 16 or 8 bits with kMantissaBits stored fraction bits. kFinite: it has no infinities, and
// its last pattern is NaN.
template <typename Bits, int kMantissaBits, bool kFinite = false>
struct SmallFloat {
  static constexpr int mantissa_bits = kMantissaBits;
  static constexpr int sign_place = static_cast<int>(8 * sizeof(Bits)) - 1;
  static constexpr int exponent_bits = sign_place - kMantissaBits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  Bits bits = 0;

  // To nearest, ties to even; too large becomes infinity, or NaN where there is none.
  static SmallFloat from(double value) {
    const uint64_t raw = std::bit_cast<uint64_t>(value);
    const uint64_t magnitude = raw & ~(uint64_t{1} << 63);
    const auto sign = static_cast<Bits>(raw >> 63 << sign_place);
    constexpr uint64_t top = ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
    constexpr uint64_t infinity = kFinite ? (uint64_t{1} << sign_place) - 1 : top;
    if (magnitude > uint64_t{0x7ff} << 52) return {static_cast<Bits>(sign | infinity | 1 << (mantissa_bits - 1))};
    const int64_t exponent = static_cast<int64_t>(magnitude >> 52) - 1023 + bias;
    const uint64_t mantissa = (magnitude & ((uint64_t{1} << 52) - 1)) | uint64_t{1} << 52;
    const int64_t shift = 52 - mantissa_bits + (exponent > 0 ? 0 : 1 - exponent);
    if (shift > 54) return {sign};
    const uint64_t rest = mantissa & ((uint64_t{1} << shift) - 1);
    const uint64_t tie = uint64_t{1} << (shift - 1);
    uint64_t rounded = mantissa >> shift;
    if (rest > tie || (rest == tie && rounded % 2 == 1)) ++rounded;
    // A normal number's hidden bit adds the last one to the exponent, and so does a carry out of the rounding.
    uint64_t result = rounded + (exponent > 0 ? static_cast<uint64_t>(exponent - 1) << mantissa_bits : 0);
    if (result > infinity) result = infinity;
    return {static_cast<Bits>(sign | result)};
  }

  double value() const {
    const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = bits >> sign_place ? -1.0 : 1.0;
    if (kFinite && (bits & ((1 << sign_place) - 1)) == (1 << sign_place) - 1)
      return std::numeric_limits<double>::quiet_NaN();
    if (!kFinite && exponent == (1 << exponent_bits) - 1)
      return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    const uint64_t raw = static_cast<uint64_t>(bits >> sign_place) << 63 |
                         static_cast<uint64_t>(exponent - bias + 1023) << 52 |
                         static_cast<uint64_t>(mantissa) << (52 - mantissa_bits);
    return std::bit_cast<double>(raw);
  }
};
using Half = SmallFloat<uint16_t, 10>;
using Bfloat16 = SmallFloat<uint16_t, 7>;
using Float8E4M3 = SmallFloat<uint8_t, 3, true>;
using Float8E5M2 = SmallFloat<uint8_t, 2>;

// A bool: 0 is false, any other byte is true.
struct Truth {
  uint8_t byte = 0;
};

// The generator's facts about a floating type: `digits` significant bits, and powers of two up to 2^-safe_exponent ..
// 2^safe_exponent that are normal numbers even when multiplied by [1, 2).
template <typename T>
struct FloatTraits {
  static constexpr int digits = std::numeric_limits<T>::digits;
  static constexpr int safe_exponent = -std::numeric_limits<T>::min_exponent + 1;
  static T from(double value) { return static_cast<T>(value); }
  static double value(T element) { return element; }
};
template <typename Bits, int kMantissaBits, bool kFinite>
struct FloatTraits<SmallFloat<Bits, kMantissaBits, kFinite>> {
  using Type = SmallFloat<Bits, kMantissaBits, kFinite>;
  static constexpr int digits = kMantissaBits + 1;
  static constexpr int safe_exponent = Type::bias - 1;
  static Type from(double value) { return Type::from(value); }
  static double value(Type element) { return element.value(); }
};

// An unsigned integer as large as T.
template <typename T>
using BitsOf = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

// A complex number; complex.hpp has its data.
template <typename Part>
struct Complex {
  Part real = 0, imaginary = 0;
};
template <typename T>
inline constexpr bool is_complex = false;
template <typename Part>
inline constexpr bool is_complex<Complex<Part>> = true;

// A value and an index; pairs.hpp has their data.
template <typename T, typename I>
struct Pair {
  using Value = T;
  using Index = I;
  Value value = 0;
  Index index = 0;
};
template <typename T>
inline constexpr bool is_pair = false;
template <typename Value, typename Index>
inline constexpr bool is_pair<Pair<Value, Index>> = true;
// Elements of one number.
template <typename T>
inline constexpr bool is_single = !is_complex<T> && !is_pair<T>;

// Calls body(T{}) with the C++ type of a tutti data type; false: there is none.
template <typename Body>
bool with_type(uint32_t dtype, Body&& body) {
  switch (dtype) {
    case TUTTI_INT8:
      return body(int8_t{}), true;
    case TUTTI_INT16:
      return body(int16_t{}), true;
    case TUTTI_INT32:
      return body(int32_t{}), true;
    case TUTTI_INT64:
      return body(int64_t{}), true;
    case TUTTI_UINT8:
      return body(uint8_t{}), true;
    case TUTTI_UINT16:
      return body(uint16_t{}), true;
    case TUTTI_UINT32:
      return body(uint32_t{}), true;
    case TUTTI_UINT64:
      return body(uint64_t{}), true;
    case TUTTI_FLOAT16:
      return body(Half{}), true;
    case TUTTI_BFLOAT16:
      return body(Bfloat16{}), true;
    case TUTTI_FLOAT32:
      return body(float{}), true;
    case TUTTI_FLOAT64:
      return body(double{}), true;
    case TUTTI_FLOAT8_E4M3:
      return body(Float8E4M3{}), true;
    case TUTTI_FLOAT8_E5M2:
      return body(Float8E5M2{}), true;
    case TUTTI_BOOL:
      return body(Truth{}), true;
    case TUTTI_COMPLEX64:
      return body(Complex<float>{}), true;
    case TUTTI_COMPLEX128:
      return body(Complex<double>{}), true;
    case TUTTI_FLOAT32_INT32:
      return body(Pair<float, int32_t>{}), true;
    case TUTTI_FLOAT64_INT64:
      return body(Pair<double, int64_t>{}), true;
    default:
      return false;
  }
}

}  // namespace perf
