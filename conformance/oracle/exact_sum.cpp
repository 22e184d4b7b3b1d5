// SPDX-License-Identifier: Apache-2.0
#include "oracle/exact_sum.hpp"

#include <algorithm>
#include <boost/multiprecision/cpp_int.hpp>

namespace tutti::conformance {
namespace {

using boost::multiprecision::cpp_int;

// In units of the type's least number.
cpp_int in_units(const ElementType& type, uint64_t bits) {
  const uint64_t unit = uint64_t{1} << type.fraction_bits, fraction = bits & (unit - 1);
  const uint64_t exponent = bits >> type.fraction_bits & ((uint64_t{1} << type.exponent_bits) - 1);
  return exponent ? cpp_int(fraction | unit) << (exponent - 1) : cpp_int(fraction);
}

// dividend / divisor > 0, in those units.
uint64_t rounded_quotient(const ElementType& type, const cpp_int& dividend, const cpp_int& divisor, uint64_t infinity) {
  const cpp_int greatest = cpp_int(1) << type.digits();
  uint64_t dropped = 0;  // bits below the result's last one
  while ((dividend >> dropped) >= greatest * divisor) ++dropped;
  const cpp_int step = divisor << dropped;
  const cpp_int whole = dividend / step, rest = dividend % step;
  uint64_t number = static_cast<uint64_t>(whole);
  if (rest * 2 > step || (rest * 2 == step && number % 2)) ++number;
  return std::min(infinity, (dropped << type.fraction_bits) + number);
}

}  // namespace

uint64_t exact_sum(const ElementType& type, const std::vector<uint64_t>& elements, uint64_t divisor) {
  if (elements.size() == 1 && divisor <= 1) return elements[0];
  const uint64_t sign = uint64_t{1} << (type.bits() - 1);
  const uint64_t infinity = ((uint64_t{1} << type.exponent_bits) - 1) << type.fraction_bits;
  const uint64_t nan = infinity | uint64_t{1} << (type.fraction_bits - 1);
  cpp_int sum = 0;
  bool positive = false, negative = false;
  for (const uint64_t bits : elements) {
    if (is_nan(type, bits)) return nan;
    if (is_infinite(type, bits))
      (bits & sign ? negative : positive) = true;
    else if (bits & sign)
      sum -= in_units(type, bits);
    else
      sum += in_units(type, bits);
  }
  if (positive && negative) return nan;
  if (positive || negative) return infinity | (negative ? sign : 0);
  if (sum == 0) return std::ranges::all_of(elements, [&](uint64_t bits) { return bits == sign; }) ? sign : 0;
  return rounded_quotient(type, abs(sum), std::max<uint64_t>(divisor, 1), infinity) | (sum < 0 ? sign : 0);
}

}  // namespace tutti::conformance
