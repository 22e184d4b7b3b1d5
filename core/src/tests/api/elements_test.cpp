// SPDX-License-Identifier: Apache-2.0
//
// float16 and bfloat16 against their definitions: every bit pattern to float and back, and floats between each pair of
// neighbours to the nearest, ties to even.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <tutti/elements.hpp>
#include <vector>

namespace tutti {
namespace {

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);
static_assert(std::is_trivially_copyable_v<float16> && std::is_trivially_copyable_v<bfloat16>);
static_assert(dtype_of<float16>() == TUTTI_FLOAT16 && dtype_of<bfloat16>() == TUTTI_BFLOAT16);
static_assert(dtype_of<signed char>() == TUTTI_INT8 && dtype_of<uint16_t>() == TUTTI_UINT16);
static_assert(dtype_of<long>() == TUTTI_INT64 && dtype_of<long long>() == TUTTI_INT64);
static_assert(dtype_of<float>() == TUTTI_FLOAT32 && dtype_of<double>() == TUTTI_FLOAT64);
static_assert(dtype_of<bool>() == TUTTI_BOOL && dtype_of<std::complex<float>>() == TUTTI_COMPLEX64);
static_assert(sizeof(float32_int32) == 8 && alignof(float32_int32) == 4 && sizeof(float64_int64) == 16);
static_assert(dtype_of<float32_int32>() == TUTTI_FLOAT32_INT32 && dtype_of<float64_int64>() == TUTTI_FLOAT64_INT64);
static_assert(dtype_number<long double> == 0 && dtype_number<std::string> == 0);
static_assert(Elements<std::vector<float>> && Elements<const std::vector<float>&> && Elements<int (&)[3]>);
static_assert(Elements<std::span<const double>> && Elements<DeviceSpan<const float16>> && Elements<std::string&>);
static_assert(!Elements<std::vector<bool>> && !Elements<std::vector<std::string>> && !Elements<float>);
static_assert(float16(1.5f).bits() == 0x3e00, "conversions are constant expressions");

// A format by its fields alone: the value of each bit pattern.
struct Format {
  int fraction_bits, exponent_bits;
  double value(uint32_t bits) const {
    const int bias = (1 << (exponent_bits - 1)) - 1;
    const auto fraction = static_cast<double>(bits & ((1u << fraction_bits) - 1));
    const int exponent = static_cast<int>(bits >> fraction_bits) & ((1 << exponent_bits) - 1);
    const double scale = std::ldexp(1.0, fraction_bits);
    const double size =
        exponent == 0 ? std::ldexp(fraction / scale, 1 - bias) : std::ldexp(1 + fraction / scale, exponent - bias);
    return bits >> 15 ? -size : size;
  }
  // The largest number; the next pattern is infinity.
  uint32_t largest() const { return (((1u << exponent_bits) - 1) << fraction_bits) - 1; }
};

template <typename T>
void check(const Format& format) {
  for (uint32_t sign : {0u, 0x8000u})
    for (uint32_t bits = 0; bits <= format.largest(); ++bits) {
      const auto number = static_cast<uint16_t>(sign | bits);
      const float value = T::from_bits(number);
      ASSERT_EQ(value, format.value(number)) << number;
      ASSERT_EQ(std::signbit(value), sign != 0) << number;
      ASSERT_EQ(T(value).bits(), number);
      // The middle to the next one, and its neighbours among floats; beyond the largest lies infinity.
      const auto middle = static_cast<float>((format.value(number) + format.value(number + 1u)) / 2);
      const float outward = sign ? -std::numeric_limits<float>::infinity() : std::numeric_limits<float>::infinity();
      ASSERT_EQ(T(middle).bits(), bits % 2 == 0 ? number : number + 1) << "a tie above " << number;
      ASSERT_EQ(T(std::nextafter(middle, outward)).bits(), number + 1) << "above a tie above " << number;
      ASSERT_EQ(T(std::nextafter(middle, value)).bits(), number) << "below a tie above " << number;
    }
  const float infinity = std::numeric_limits<float>::infinity();
  const auto top = static_cast<uint16_t>(format.largest() + 1);
  EXPECT_EQ(T(infinity).bits(), top);
  EXPECT_EQ(T(-infinity).bits(), 0x8000 | top);
  EXPECT_EQ(static_cast<float>(T::from_bits(top)), infinity);
  EXPECT_EQ(static_cast<float>(T::from_bits(static_cast<uint16_t>(0x8000 | top))), -infinity);
  EXPECT_EQ(T(std::numeric_limits<float>::denorm_min()).bits(), 0);
  for (uint32_t bits = top + 1u; bits < 0x8000; ++bits) {
    const float nan = T::from_bits(static_cast<uint16_t>(bits));
    ASSERT_TRUE(std::isnan(nan)) << bits;
    ASSERT_TRUE(std::isnan(static_cast<float>(T(nan)))) << bits;
  }
  // A payload in the lower bits alone must not turn into infinity.
  EXPECT_TRUE(std::isnan(static_cast<float>(T(std::bit_cast<float>(0x7f800001u)))));
  EXPECT_TRUE(std::isnan(static_cast<float>(T(std::bit_cast<float>(0xffffffffu)))));
}

TEST(Elements, Float16) { check<float16>({10, 5}); }

// Every pattern to float and back; the middle of two neighbours goes to the even one, its neighbours to the nearer one.
template <typename T>
void check_float8(const Format& format, uint32_t largest, uint32_t beyond) {
  const float infinity = std::numeric_limits<float>::infinity();
  for (const uint32_t sign : {0u, 0x80u})
    for (uint32_t bits = 0; bits <= largest; ++bits) {
      const float value = T::from_bits(static_cast<uint8_t>(sign | bits));
      const double right = format.value(bits), next = format.value(bits + 1);
      ASSERT_EQ(value, sign ? -right : right) << bits;
      ASSERT_EQ(std::signbit(value), sign != 0) << bits;
      ASSERT_EQ(T(value).bits(), sign | bits);
      const auto middle = static_cast<float>(sign ? -(right + next) / 2 : (right + next) / 2);
      const uint32_t above = sign | (bits == largest ? beyond : bits + 1);
      ASSERT_EQ(T(middle).bits(), bits % 2 == 0 ? sign | bits : above) << "a tie above " << bits;
      ASSERT_EQ(T(std::nextafter(middle, sign ? -infinity : infinity)).bits(), above) << "above a tie above " << bits;
      ASSERT_EQ(T(std::nextafter(middle, value)).bits(), sign | bits) << "below a tie above " << bits;
    }
  EXPECT_EQ(T(infinity).bits(), beyond);
  EXPECT_EQ(T(-1e30f).bits(), 0x80 | beyond);
  for (const float nan : {std::bit_cast<float>(0x7f800001u), std::bit_cast<float>(0xffffffffu)})
    EXPECT_TRUE(std::isnan(static_cast<float>(T(nan))));
  for (uint32_t bits = largest + 1; bits < 0x80; ++bits)
    EXPECT_EQ(std::isnan(static_cast<float>(T::from_bits(static_cast<uint8_t>(bits)))),
              bits != 0x7c || largest == 0x7e);
}

TEST(Elements, Float8E4M3) { check_float8<float8_e4m3>({3, 4}, 0x7e, 0x7f); }

TEST(Elements, Float8E5M2) { check_float8<float8_e5m2>({2, 5}, 0x7b, 0x7c); }

static_assert(dtype_of<float8_e4m3>() == TUTTI_FLOAT8_E4M3 && sizeof(float8_e4m3) == 1);
static_assert(dtype_of<float8_e5m2>() == TUTTI_FLOAT8_E5M2 && float8_e5m2(1.5f).bits() == 0x3e);

TEST(Elements, Bfloat16) { check<bfloat16>({7, 8}); }

}  // namespace
}  // namespace tutti
