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

// A 16-bit floating-point number of kMantissaBits stored fraction bits: IEEE binary16 (10) or bfloat16 (7).
template <int kMantissaBits>
struct SmallFloat {
  static constexpr int mantissa_bits = kMantissaBits;
  static constexpr int exponent_bits = 15 - kMantissaBits;
  static constexpr int bias = (1 << (exponent_bits - 1)) - 1;
  uint16_t bits = 0;

  // To nearest, ties to even; too large becomes infinity.
  static SmallFloat from(double value) {
    const uint64_t raw = std::bit_cast<uint64_t>(value);
    const uint64_t magnitude = raw & ~(uint64_t{1} << 63);
    const uint16_t sign = static_cast<uint16_t>(raw >> 63 << 15);
    constexpr uint64_t infinity = ((uint64_t{1} << exponent_bits) - 1) << mantissa_bits;
    if (magnitude > uint64_t{0x7ff} << 52) return {static_cast<uint16_t>(sign | infinity | 1 << (mantissa_bits - 1))};
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
    return {static_cast<uint16_t>(sign | result)};
  }

  double value() const {
    const int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
    const int mantissa = bits & ((1 << mantissa_bits) - 1);
    const double sign = bits >> 15 ? -1.0 : 1.0;
    if (exponent == (1 << exponent_bits) - 1)
      return mantissa ? std::numeric_limits<double>::quiet_NaN() : sign * std::numeric_limits<double>::infinity();
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
    const uint64_t raw = static_cast<uint64_t>(bits >> 15) << 63 | static_cast<uint64_t>(exponent - bias + 1023) << 52 |
                         static_cast<uint64_t>(mantissa) << (52 - mantissa_bits);
    return std::bit_cast<double>(raw);
  }
};
using Half = SmallFloat<10>;
using Bfloat16 = SmallFloat<7>;

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
template <int kMantissaBits>
struct FloatTraits<SmallFloat<kMantissaBits>> {
  using Type = SmallFloat<kMantissaBits>;
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
    case TUTTI_BOOL:
      return body(Truth{}), true;
    default:
      return false;
  }
}

}  // namespace perf
