// SPDX-License-Identifier: Apache-2.0
//
// Element types as the oracle knows them: by their bits, written down once, sharing nothing with the library's kernels.
// An element is handled as its bit pattern in the low end of a uint64_t. One of 16 bytes is handled as the type of 8
// bytes that has the same parts in half the size: a float64 as the float32 with the same sign, exponent and first bits
// of the fraction, whose last bit is set if the rest of the fraction is not 0, and an int64 index as the int32 of
// which it is 2^31 + 1 times. All numbers of the oracle's own are exact.
#pragma once

#include <cstdint>
#include <string>

namespace tutti::conformance {

struct ElementType {
  enum class Kind { signed_integer, unsigned_integer, floating, truth, complex, pair };
  const char* name;  // as dtype_name gives it
  uint32_t bytes;
  Kind kind;
  // Floating: a sign bit, exponent bits, stored fraction bits. The largest exponent means infinity and NaN, except
  // where `finite`: there all its values are numbers but the one of all ones, which is NaN (float8_e4m3).
  int exponent_bits, fraction_bits;
  bool finite;

  uint32_t bits() const { return bytes > 8 ? 64 : bytes * 8; }
  // Two floats, of which exponent_bits and fraction_bits tell.
  bool complex() const { return kind == Kind::complex; }
  // Such a float, and a signed index as large.
  bool pair() const { return kind == Kind::pair; }
  bool floating() const { return kind == Kind::floating; }
  bool truth() const { return kind == Kind::truth; }
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  // Significant bits of a normal number.
  int digits() const { return fraction_bits + 1; }
};

// nullptr: the oracle does not know the type.
const ElementType* element_type(const std::string& name);

// The value of a floating element; exact, since no type has more than double.
double value_of(const ElementType& type, uint64_t bits);
// To nearest, ties to even; too large: infinity, or NaN where there is none.
uint64_t rounded(const ElementType& type, double value);
bool is_nan(const ElementType& type, uint64_t bits);
bool is_infinite(const ElementType& type, uint64_t bits);
// Floating elements in the order of their values, -0 just below +0: neighbours differ by one.
int64_t ordinal(const ElementType& type, uint64_t bits);
// An integer or truth value as a number.
int64_t signed_of(const ElementType& type, uint64_t bits);
// The low bits that the type has.
uint64_t truncated(const ElementType& type, uint64_t bits);

uint64_t load(const ElementType& type, const void* buffer, uint64_t index);
void store(const ElementType& type, void* buffer, uint64_t index, uint64_t bits);

// "0.3125 (0x3ea0)", "-7 (0xf9)".
std::string to_text(const ElementType& type, uint64_t bits);

}  // namespace tutti::conformance
