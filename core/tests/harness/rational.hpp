// SPDX-License-Identifier: Apache-2.0
//
// Exact sums by rational arithmetic, which rounds nowhere but at its end and shares no code with the kernels.
#pragma once

#include <tutti/plugin/types.h>

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>
#include <cstdint>
#include <vector>

namespace tutti::test {

using boost::multiprecision::cpp_int;
using Bits = uint64_t;  // an element's bit pattern

struct Format {
  uint32_t dtype;
  unsigned bytes, exponent_bits, fraction_bits;

  Bits sign() const { return Bits{1} << (8 * bytes - 1); }
  Bits most_exponent() const { return (Bits{1} << exponent_bits) - 1; }
  Bits unit() const { return Bits{1} << fraction_bits; }
  Bits infinity() const { return most_exponent() << fraction_bits; }
  Bits nan() const { return infinity() | unit() >> 1; }
  Bits greatest() const { return infinity() - 1; }
  Bits exponent(Bits x) const { return x >> fraction_bits & most_exponent(); }
  // In units of the least denormal number.
  cpp_int value(Bits x) const {
    const Bits fraction = x & (unit() - 1);
    cpp_int v = exponent(x) ? fraction | unit() : fraction;
    v <<= exponent(x) ? exponent(x) - 1 : 0;
    return x & sign() ? cpp_int(-v) : v;
  }
};
inline const Format formats[] = {
    {TUTTI_FLOAT16, 2, 5, 10}, {TUTTI_BFLOAT16, 2, 8, 7}, {TUTTI_FLOAT32, 4, 8, 23}, {TUTTI_FLOAT64, 8, 11, 52}};

// |dividend / divisor| rounded to the format.
inline Bits rounded(const Format& f, const cpp_int& dividend, const cpp_int& divisor) {
  const auto bits = [](const cpp_int& v) { return static_cast<int>(msb(v)); };
  const int precision = static_cast<int>(f.fraction_bits) + 1;
  // The places of the quotient below the result's last one: of two candidates the one with the right number of bits.
  unsigned below = static_cast<unsigned>(std::max(0, bits(dividend) - bits(divisor) - precision));
  cpp_int quotient, rest;
  divide_qr(dividend, cpp_int(divisor << below), quotient, rest);
  if (quotient >> precision != 0) divide_qr(dividend, cpp_int(divisor << ++below), quotient, rest);
  const cpp_int twice = rest * 2, step = divisor << below;
  if (twice > step || (twice == step && quotient % 2 != 0)) ++quotient;
  // One more than all ones is the next exponent's first number.
  const Bits fraction = static_cast<Bits>(quotient);
  return std::min(f.infinity(), below ? Bits{below} * f.unit() + fraction : fraction);
}

inline Bits reference(const Format& f, const std::vector<Bits>& in, uint64_t divisor) {
  cpp_int sum = 0;
  bool nan = false, positive = false, negative = false;
  for (const Bits x : in) {
    if (f.exponent(x) != f.most_exponent())
      sum += f.value(x);
    else
      (x & (f.unit() - 1) ? nan : x & f.sign() ? negative : positive) = true;
  }
  if (nan || (positive && negative)) return f.nan();
  if (positive || negative) return f.infinity() | (negative ? f.sign() : 0);
  if (sum == 0) return std::ranges::all_of(in, [&](Bits x) { return x == f.sign(); }) ? f.sign() : 0;
  return rounded(f, abs(sum), divisor ? divisor : 1) | (sum < 0 ? f.sign() : 0);
}

}  // namespace tutti::test
