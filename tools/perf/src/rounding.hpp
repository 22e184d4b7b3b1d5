// SPDX-License-Identifier: Apache-2.0
//
// Inputs of exact sums: numbers whose sums round, and the sum or average of them, rounded once.
//
// An input has a full mantissa, and a magnitude from 1/16 to 16. So it is a whole number of units that are the last
// place of the least one: whole numbers of 128 bits add the inputs of all ranks exactly.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

#include "element.hpp"

namespace perf {

template <typename T>
class RoundingSource {
 public:
  static constexpr bool rounds = false;  // results are compared bit for bit

  explicit RoundingSource(bool averages) : averages_(averages) {}

  // `own`: the generator of the rank at the index.
  T input(uint64_t own) const { return FloatTraits<T>::from(static_cast<double>(units(own)) * unit); }

  // The result of the ranks whose generators are own(0) ... own(ranks - 1).
  template <typename Own>
  T expected(uint32_t ranks, Own&& own) const {
    if (ranks == 1) return input(own(0));
    Wide sum = 0;
    for (uint32_t rank = 0; rank < ranks; ++rank) sum += units(own(rank));
    return sum < 0 ? negative(rounded(0 - static_cast<Natural>(sum), ranks))
                   : rounded(static_cast<Natural>(sum), ranks);
  }

 private:
  __extension__ using Wide = __int128;
  __extension__ using Natural = unsigned __int128;
  static constexpr int digits = FloatTraits<T>::digits, binades = 8;
  static constexpr int places = digits - 1 + binades / 2;  // binary ones behind the point
  static constexpr double unit = 1.0 / static_cast<double>(uint64_t{1} << places);

  static int64_t units(uint64_t own) {
    const uint64_t leading = uint64_t{1} << (digits - 1);
    const auto mantissa = static_cast<int64_t>(leading | (own & (leading - 1)));
    const auto binade = static_cast<int>(own >> 60 & (binades - 1));
    return (own >> 63 ? -mantissa : mantissa) << binade;
  }
  static int bits(Natural number) {
    const auto high = static_cast<uint64_t>(number >> 64);
    return 64 + static_cast<int>(high ? std::bit_width(high) : std::bit_width(static_cast<uint64_t>(number)) - 64);
  }
  static T negative(T number) { return FloatTraits<T>::from(-FloatTraits<T>::value(number)); }

  // As many bits of the quotient as a double has and more, the last of which is set where others follow: no later
  // rounding is misled.
  T rounded(Natural sum, uint32_t ranks) const {
    if (sum == 0) return FloatTraits<T>::from(0);
    int shift = averages_ ? 120 - bits(sum) : 0;
    Natural quotient = sum << shift;
    if (averages_) {
      const Natural exact = quotient;
      quotient /= ranks;
      if (quotient * ranks != exact) quotient |= 1;
    }
    // FloatTraits rounds doubles: they take as many bits.
    if (const int more = bits(quotient) - 53; digits < 50 && more > 0) {
      const bool others = (quotient & ((Natural{1} << more) - 1)) != 0;
      quotient = quotient >> more | (others ? 1 : 0);
      shift -= more;
    }
    return FloatTraits<T>::from(std::ldexp(static_cast<double>(quotient), -places - shift));
  }

  bool averages_;
};

}  // namespace perf
