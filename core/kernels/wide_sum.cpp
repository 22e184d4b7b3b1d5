// SPDX-License-Identifier: Apache-2.0
//
// A number is a row of limbs of 32 bits each, held in 64: an addition touches three of them and carries nothing, so
// 2^30 additions fit. Carries, the division and the only rounding come at the end. (R. M. Neal, Fast exact summation
// using small and large superaccumulators, 2015; the idea is Kulisch's long accumulator.)
#include "kernels/wide_sum.hpp"

#include <tutti/plugin/types.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/kernel_vectors.hpp"

namespace tutti::core {
namespace {

// Room for 2^30 values of up to `greatest` bits before the point, and `least` after it. Below them is a limb for the
// first places of a quotient.
template <int kGreatest, int kLeast>
class FixedPoint {
 public:
  void add(double value) {
    const uint64_t bits = std::bit_cast<uint64_t>(value);
    const uint32_t exponent = static_cast<uint32_t>(bits >> 52) & 0x7ff;
    uint64_t mantissa = bits & ((uint64_t{1} << 52) - 1);
    if (exponent == 0x7ff) {
      (mantissa ? nan_ : bits >> 63 ? negative_infinity_ : positive_infinity_) = true;
      return;
    }
    if (!(bits >> 63)) all_negative_zeros_ = false;
    if (exponent) mantissa |= uint64_t{1} << 52;
    if (mantissa == 0) return;
    all_negative_zeros_ = false;
    // A float's mantissa has zeros at its end, which would lie below the point where that is: they are taken off.
    int place = (exponent ? static_cast<int>(exponent) : 1) - 1075 + origin;
    if (place < 0) {
      mantissa >>= -place;
      place = 0;
    }
    const unsigned __int128 shifted = static_cast<unsigned __int128>(mantissa) << (place % 32);
    const int64_t sign = bits >> 63 ? -1 : 1;
    for (int k = 0; k < 3; ++k)
      limbs_[place / 32 + k] += sign * static_cast<int64_t>(shifted >> (32 * k) & 0xffffffffu);
  }

  // The value, divided and rounded to `precision` bits, whose last has at least the place 2^least.
  double round(uint64_t divisor, int precision, int least) {
    if (nan_ || (positive_infinity_ && negative_infinity_)) return std::numeric_limits<double>::quiet_NaN();
    if (positive_infinity_) return std::numeric_limits<double>::infinity();
    if (negative_infinity_) return -std::numeric_limits<double>::infinity();
    if (all_negative_zeros_) return -0.0;
    const bool negative = carry();
    if (divisor > 1) divide(divisor);
    int top = limbs * 32 - 1;
    while (top >= 0 && !bit(top)) --top;
    if (top < 0) return 0.0;
    const int last = std::max(top - precision + 1, least + origin);
    uint64_t mantissa = 0;
    for (int place = top; place >= last; --place) mantissa = mantissa << 1 | bit(place);
    bool sticky = false;
    for (int place = 0; place < last - 1 && !sticky; ++place) sticky = bit(place);
    if (bit(last - 1) && (sticky || (mantissa & 1))) ++mantissa;
    const double magnitude = std::ldexp(static_cast<double>(mantissa), last - origin);
    return negative ? -magnitude : magnitude;
  }

 private:
  static constexpr int origin = kLeast + 32;  // the place of 2^0
  static constexpr int limbs = (origin + kGreatest + 30 + 31) / 32 + 2;

  bool bit(int place) const { return limbs_[place / 32] >> (place % 32) & 1; }
  // Limbs become digits 0 ... 2^32 - 1 of the magnitude. Returns whether the value is negative.
  bool carry() {
    if (propagate() >= 0) return false;
    for (int64_t& limb : limbs_) limb = -limb;
    propagate();
    return true;
  }
  int64_t propagate() {
    int64_t carried = 0;
    for (int64_t& limb : limbs_) {
      carried += limb;
      limb = carried & 0xffffffff;
      carried >>= 32;
    }
    return carried;
  }
  // The lowest limb takes 32 places of the quotient below the least denormal number d. A sum is a multiple of d, so the
  // quotient is a multiple of d / 2, or further than d / 2^32 from all of these: the remainder decides nothing.
  void divide(uint64_t divisor) {
    uint64_t rest = 0;
    for (int k = limbs - 1; k >= 0; --k) {
      rest = rest << 32 | static_cast<uint64_t>(limbs_[k]);
      limbs_[k] = static_cast<int64_t>(rest / divisor);
      rest %= divisor;
    }
  }

  int64_t limbs_[limbs] = {};
  bool nan_ = false, positive_infinity_ = false, negative_infinity_ = false, all_negative_zeros_ = true;
};

// E: an element type of kernel_vectors.hpp.
template <typename E, typename Number>
double sum(const void* const* srcs, uint32_t nsrcs, uint64_t index, uint64_t divisor, int precision, int least) {
  Number number;
  for (uint32_t k = 0; k < nsrcs; ++k) {
    Vector<typename E::Stored, 1> stored;
    std::memcpy(&stored, static_cast<const char*>(srcs[k]) + index * sizeof stored, sizeof stored);
    number.add(E::template widen<1>(stored)[0]);
  }
  return number.round(divisor, precision, least);
}

}  // namespace

double wide_sum(uint32_t dtype, const void* const* srcs, uint32_t nsrcs, uint64_t index, uint64_t divisor) {
  using Small = FixedPoint<128, 149>;
  switch (dtype) {
    case TUTTI_FLOAT16:
      return sum<Float16, Small>(srcs, nsrcs, index, divisor, 11, -24);
    case TUTTI_BFLOAT16:
      return sum<Bfloat16, Small>(srcs, nsrcs, index, divisor, 8, -133);
    case TUTTI_FLOAT32:
      return sum<Plain<float>, Small>(srcs, nsrcs, index, divisor, 24, -149);
    default:
      return sum<Plain<double>, FixedPoint<1024, 1074>>(srcs, nsrcs, index, divisor, 53, -1074);
  }
}

}  // namespace tutti::core
