// SPDX-License-Identifier: Apache-2.0
#include "element.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>

namespace tutti::conformance {
namespace {

using Kind = ElementType::Kind;
constexpr ElementType types[] = {{"int8", 1, Kind::signed_integer, 0, 0, false},
                                 {"int16", 2, Kind::signed_integer, 0, 0, false},
                                 {"int32", 4, Kind::signed_integer, 0, 0, false},
                                 {"int64", 8, Kind::signed_integer, 0, 0, false},
                                 {"uint8", 1, Kind::unsigned_integer, 0, 0, false},
                                 {"uint16", 2, Kind::unsigned_integer, 0, 0, false},
                                 {"uint32", 4, Kind::unsigned_integer, 0, 0, false},
                                 {"uint64", 8, Kind::unsigned_integer, 0, 0, false},
                                 {"float16", 2, Kind::floating, 5, 10, false},
                                 {"bfloat16", 2, Kind::floating, 8, 7, false},
                                 {"float32", 4, Kind::floating, 8, 23, false},
                                 {"float64", 8, Kind::floating, 11, 52, false},
                                 {"float8_e4m3", 1, Kind::floating, 4, 3, true},
                                 {"float8_e5m2", 1, Kind::floating, 5, 2, false},
                                 {"bool", 1, Kind::truth, 0, 0, false},
                                 {"complex64", 8, Kind::complex, 8, 23, false},
                                 {"complex128", 16, Kind::complex, 8, 23, false},
                                 {"float32_int32", 8, Kind::pair, 8, 23, false},
                                 {"float64_int64", 16, Kind::pair, 8, 23, false}};

uint64_t exponent_of(const ElementType& t, uint64_t bits) {
  return bits >> t.fraction_bits & ((uint64_t{1} << t.exponent_bits) - 1);
}
uint64_t fraction_of(const ElementType& t, uint64_t bits) { return bits & ((uint64_t{1} << t.fraction_bits) - 1); }
uint64_t top_exponent(const ElementType& t) { return (uint64_t{1} << t.exponent_bits) - 1; }
uint64_t sign_bit(const ElementType& t) { return uint64_t{1} << (t.bits() - 1); }

// The magnitude above which there are no numbers: infinity's bits, or the NaN's of a finite type.
uint64_t beyond(const ElementType& t) {
  const uint64_t top = top_exponent(t) << t.fraction_bits;
  return t.finite ? top | ((uint64_t{1} << t.fraction_bits) - 1) : top;
}

// A float64 as a float32 and back (element.hpp).
constexpr int rest_bits = 29, first_exponent = 1023 - 127;
uint64_t narrowed(uint64_t wide) {
  const uint64_t sign = wide >> 63 << 31, exponent = wide >> 52 & 0x7ff, fraction = wide & ((uint64_t{1} << 52) - 1);
  const uint64_t rest = (fraction & ((uint64_t{1} << rest_bits) - 1)) != 0, first = fraction >> rest_bits | rest;
  if (exponent == 0 || exponent == 0x7ff) return sign | (exponent ? uint64_t{0xff} << 23 : 0) | first;
  constexpr uint64_t none = 0x7fabcdef;  // a NaN that no number of the oracle's is
  if (exponent <= first_exponent || exponent >= first_exponent + 255) return none;
  return sign | (exponent - first_exponent) << 23 | first;
}
uint64_t widened(uint64_t narrow) {
  const uint64_t sign = narrow >> 31 << 63, exponent = narrow >> 23 & 0xff, fraction = narrow & 0x7fffff;
  const uint64_t wide = exponent == 0 ? 0 : exponent == 0xff ? 0x7ff : exponent + first_exponent;
  return sign | wide << 52 | fraction << rest_bits;
}

// An int64 index as an int32 and back.
constexpr int64_t index_factor = (int64_t{1} << 31) + 1;
uint64_t narrowed_index(int64_t wide) {
  const int64_t narrow = wide / index_factor;
  constexpr uint64_t none = 0x80abcdef;  // hardly an index of the oracle's
  return wide % index_factor || narrow != static_cast<int32_t>(narrow) ? none : static_cast<uint32_t>(narrow);
}
int64_t widened_index(uint64_t narrow) { return static_cast<int32_t>(narrow) * index_factor; }

// 2^n, for the exponents of normal doubles: -1022 to 1023.
double power_of_two(int n) { return std::bit_cast<double>(static_cast<uint64_t>(n + 1023) << 52); }
// The exponent of a normal double that is not negative; 1024 of infinity, -1023 below all normal ones.
int exponent_of_double(double magnitude) { return static_cast<int>(std::bit_cast<uint64_t>(magnitude) >> 52) - 1023; }

}  // namespace

const ElementType* element_type(const std::string& name) {
  for (const ElementType& type : types)
    if (name == type.name) return &type;
  return nullptr;
}

bool is_nan(const ElementType& t, uint64_t bits) {
  if (!t.floating()) return false;
  const uint64_t magnitude = bits & (sign_bit(t) - 1);
  return t.finite ? magnitude == beyond(t) : magnitude > beyond(t);
}

bool is_infinite(const ElementType& t, uint64_t bits) {
  return t.floating() && !t.finite && (bits & (sign_bit(t) - 1)) == beyond(t);
}

double value_of(const ElementType& t, uint64_t bits) {
  if (t.bytes == 8) return std::bit_cast<double>(bits);
  const double sign = bits & sign_bit(t) ? -1.0 : 1.0;
  if (is_nan(t, bits)) return std::numeric_limits<double>::quiet_NaN();
  if (is_infinite(t, bits)) return sign * std::numeric_limits<double>::infinity();
  const auto exponent = static_cast<int>(exponent_of(t, bits));
  const auto fraction = static_cast<double>(fraction_of(t, bits));
  const double unit = power_of_two(std::max(exponent, 1) - t.bias() - t.fraction_bits);
  return sign * (exponent ? static_cast<double>(uint64_t{1} << t.fraction_bits) + fraction : fraction) * unit;
}

uint64_t rounded(const ElementType& t, double value) {
  const uint64_t sign = std::signbit(value) ? sign_bit(t) : 0;
  if (std::isnan(value)) return sign | (t.finite ? beyond(t) : beyond(t) | uint64_t{1} << (t.fraction_bits - 1));
  if (t.bytes == 8) return std::bit_cast<uint64_t>(value);
  const double magnitude = std::fabs(value);
  const int exponent = exponent_of_double(magnitude);
  if (exponent > t.bias() + 1) return sign | beyond(t);
  // In units of the last place that the result can have, rounded by the processor: to nearest, ties to even. Above this
  // number a double has no room for less than one.
  constexpr double whole_from = 0x1p52;
  const int lowest = 1 - t.bias();
  const int unit = std::max(exponent, lowest) - t.fraction_bits;
  const auto units = static_cast<uint64_t>((magnitude * power_of_two(-unit) + whole_from) - whole_from);
  // A number of units that reaches the next power of two carries into the exponent, as the encoding has it.
  const uint64_t biased = exponent < lowest ? 0 : static_cast<uint64_t>(exponent + t.bias() - 1);
  const uint64_t result = (biased << t.fraction_bits) + units;
  return sign | (result > beyond(t) ? beyond(t) : result);
}

int64_t ordinal(const ElementType& t, uint64_t bits) {
  const auto magnitude = static_cast<int64_t>(bits & (sign_bit(t) - 1));
  return bits & sign_bit(t) ? -1 - magnitude : magnitude;
}

uint64_t truncated(const ElementType& t, uint64_t bits) {
  return t.bytes >= 8 ? bits : bits & ((uint64_t{1} << t.bits()) - 1);
}

int64_t signed_of(const ElementType& t, uint64_t bits) {
  if (t.kind != Kind::signed_integer) return static_cast<int64_t>(bits);
  const uint32_t unused = 64 - t.bits();
  return static_cast<int64_t>(bits << unused) >> unused;
}

uint64_t load(const ElementType& t, const void* buffer, uint64_t index) {
  uint64_t bits = 0;
  const auto* at = static_cast<const char*>(buffer) + index * t.bytes;
  static_assert(std::endian::native == std::endian::little, "an element's bytes are the low end of the word");
  if (t.bytes == 16) {
    uint64_t parts[2];
    std::memcpy(parts, at, sizeof parts);
    const uint64_t second = t.pair() ? narrowed_index(static_cast<int64_t>(parts[1])) : narrowed(parts[1]);
    return narrowed(parts[0]) | second << 32;
  }
  switch (t.bytes) {
    case 1:
      std::memcpy(&bits, at, 1);
      break;
    case 2:
      std::memcpy(&bits, at, 2);
      break;
    case 4:
      std::memcpy(&bits, at, 4);
      break;
    default:
      std::memcpy(&bits, at, 8);
      break;
  }
  return bits;
}

void store(const ElementType& t, void* buffer, uint64_t index, uint64_t bits) {
  auto* at = static_cast<char*>(buffer) + index * t.bytes;
  if (t.bytes == 16) {
    const uint64_t second = t.pair() ? static_cast<uint64_t>(widened_index(bits >> 32)) : widened(bits >> 32);
    const uint64_t parts[2] = {widened(bits & 0xffffffff), second};
    std::memcpy(at, parts, sizeof parts);
    return;
  }
  switch (t.bytes) {
    case 1:
      std::memcpy(at, &bits, 1);
      break;
    case 2:
      std::memcpy(at, &bits, 2);
      break;
    case 4:
      std::memcpy(at, &bits, 4);
      break;
    default:
      std::memcpy(at, &bits, 8);
      break;
  }
}

std::string to_text(const ElementType& t, uint64_t bits) {
  char text[80];
  const auto raw = static_cast<unsigned long long>(bits);
  const int width = static_cast<int>(2 * t.bytes);
  if (t.complex())
    std::snprintf(text, sizeof text, "%.9g, %.9g (0x%0*llx)",
                  static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))),
                  static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits >> 32))), width, raw);
  else if (t.pair())
    std::snprintf(text, sizeof text, "%.9g at %lld (0x%0*llx)",
                  static_cast<double>(std::bit_cast<float>(static_cast<uint32_t>(bits))),
                  static_cast<long long>(static_cast<int32_t>(bits >> 32)), width, raw);
  else if (t.floating())
    std::snprintf(text, sizeof text, "%.9g (0x%0*llx)", value_of(t, bits), width, raw);
  else if (t.kind == Kind::signed_integer)
    std::snprintf(text, sizeof text, "%lld (0x%0*llx)", static_cast<long long>(signed_of(t, bits)), width, raw);
  else
    std::snprintf(text, sizeof text, "%llu (0x%0*llx)", raw, width, raw);
  return text;
}

}  // namespace tutti::conformance
