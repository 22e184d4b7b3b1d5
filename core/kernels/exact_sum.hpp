// SPDX-License-Identifier: Apache-2.0
//
// Exact sums: every element of the result is the real number x0 + x1 + ... (divided by a count, for an average) rounded
// once, to nearest with ties to even. So the bits do not depend on the order of the sources, on brackets, or on the
// width of a vector. Included by kernel_loops.hpp.
//
//  - NaN if any source is NaN, or if infinities of both signs are; else the infinity, if there is one.
//  - Infinity where the exact result rounds beyond the largest number, and only there: no partial sum overflows.
//  - -0 if all sources are -0. Any other exact zero is +0. A quotient that rounds to zero keeps its sign.
//  - One source without divisor is a copy.
//
// Levels; an element takes the next one only where its rounding is not certain.
//
// 0. exact_sum_in_float.hpp: the sum in float, for 16-bit floats of few ranks.
// 1. Range (16-bit floats, float32). All sources are added in double. Let G be the greatest exponent of an element's n
//    sources, L the least of those that are not zero, and p the type's precision. Sources, and so all partial sums,
//    are multiples of u = 2^(L-p+1) and smaller than n 2^(G+1). If G - L <= 53 - p - ceil(log2 n), they are less than
//    2^53 u, so no addition rounds. float16 needs no test: u = 2^-24, and 4,096 sources stay below 2^28.
//    An average divides by d <= 2^(51-p), which is at least 2^26, and rounds twice, which is harmless. The quotient q
//    is below 2^53 u / d, so its rounding to double moves it by less than u / d, and by at most 2^-53 q. Let m lie
//    halfway between two numbers of the type. m is a multiple of u, or of a smaller power of two above 2^(-p-1) m; so
//    is the sum. Thus q is m, or at least u / d or 2^(-p-1) m / d >= 2^-52 m away from it, and rounding does not carry
//    it to m.
// 2. Cascade. TwoSum (Knuth, TAOCP 2, 4.2.2; Moller) gives a + b = s + e exactly for any two doubles unless s
//    overflows; a sum never underflows. The sources run through two of them: s takes the sources, t takes the errors
//    of s, and `bound` takes the magnitudes of the errors of t. So x = s + t + e with |e| <= 2 bound: the additions of
//    bound itself lose less than half. (Ogita, Rump, Oishi, Accurate sum and dot product, SIAM J. Sci. Comput. 26,
//    2005: SumK with K = 3, with a sum of magnitudes in place of the last sum.) The rounding is certain if all numbers
//    between the limits round alike.
// 3. wide_sum.hpp: all bits of all sources.
//
// An infinity, a NaN or an overflow of a partial sum leaves NaN in `bound` on level 2, which is never certain.
// No operation may be contracted or reassociated, and rounding is to nearest.
#pragma once

#include <tutti/plugin/types.h>

#include "kernels/kernel_vectors.hpp"
#include "kernels/wide_sum.hpp"

namespace tutti::core {
namespace {

template <int N>
using Double = Vector<double, N>;
template <int N>
using Long = Vector<int64_t, N>;

template <int N>
TUTTI_INLINE Double<N> magnitude(Double<N> v) {
  return (Double<N>)((Long<N>)v & INT64_MAX);
}

template <int N>
TUTTI_INLINE Double<N> to_double(Single<N> v) {
#if defined(__AVX512BW__)
  if constexpr (N == 8) return (Double<N>)_mm512_cvtps_pd((__m256)v);
#endif
  return __builtin_convertvector(v, Double<N>);
}
template <int N>
TUTTI_INLINE Single<N> to_single(Double<N> v) {
#if defined(__AVX512BW__)
  if constexpr (N == 8) return (Single<N>)_mm512_cvtpd_ps((__m512d)v);
#endif
  return __builtin_convertvector(v, Single<N>);
}

// Are all elements of a comparison true? T: int32_t or int64_t.
template <typename T, int N>
TUTTI_INLINE bool all(Vector<T, N> truth) {
  constexpr int bytes = N * static_cast<int>(sizeof(T));
#if defined(__AVX512BW__)
  if constexpr (bytes == 64) return _mm512_movepi64_mask((__m512i)truth) == 0xff;
#endif
#if defined(__AVX2__)
  if constexpr (bytes == 32) return _mm256_movemask_epi8((__m256i)truth) == -1;
#endif
#if defined(__x86_64__)
  if constexpr (bytes == 16) return _mm_movemask_epi8((__m128i)truth) == 0xffff;
#endif
  bool result = true;
  for (int i = 0; i < N; ++i) result &= truth[i] != 0;
  return result;
}

// The error of a rounded sum: a + b - sum.
template <int N>
TUTTI_INLINE Double<N> error_of(Double<N> a, Double<N> b, Double<N> sum) {
  const Double<N> other = sum - a;
  return (a - (sum - other)) + (b - other);
}

// `sum` and `term` become their sum and its error.
template <int N>
TUTTI_INLINE void two_sum(Double<N>& sum, Double<N>& term) {
  const Double<N> a = sum;
  sum = a + term;
  term = error_of<N>(a, term, sum);
}

// The same for a number and a correction, which must not change the sign of a zero.
template <int N>
TUTTI_INLINE void correct(Double<N>& number, Double<N>& correction) {
  const Double<N> a = number;
  number = correction == 0 ? a : a + correction;
  correction = error_of<N>(a, correction, number);
}

// A real number: |x - high - low| <= 2 bound, and high is high + low rounded. bound 0: x is exactly that.
template <int N>
struct Enclosed {
  Double<N> high, low, bound;
};

// An element's divisor, as numbers of the type.
struct Divisor {
  double value = 0;    // 0: there is none
  double inverse = 0;  // not 0: the divisor is a power of two
  explicit Divisor(uint64_t divisor)
      : value(divisor > 1 ? static_cast<double>(divisor) : 0),
        inverse(divisor > 1 && (divisor & (divisor - 1)) == 0 ? 1 / value : 0) {}
};

// dividend - quotient * divisor, exactly, for a rounded quotient and a divisor from 2 to 2^26, in units of the
// quotient's last place u. The dividend is the greater number, so a multiple of u. `upper` is a multiple of 2^26 u of
// at most 27 bits: its product is exact. The rest of the quotient is below 2^26 u: its product is below 2^52 u and
// exact. The remainder is at most 2^25 u. So both differences are multiples of u below 2^53 u, and exact, too; among
// denormal numbers u is the least one.
template <int N>
TUTTI_INLINE Double<N> remainder(Double<N> dividend, Double<N> quotient, double divisor) {
  const Double<N> upper = (Double<N>)((Long<N>)quotient & ~((int64_t{1} << 26) - 1));
  return (dividend - upper * divisor) - (quotient - upper) * divisor;
}

// A double that rounds to any format of at most 51 bits as value + rest does, where |rest| is less than the distance to
// the next double: of the two doubles around that sum the one whose last bit is odd. It never is a number of the format
// or halfway between two, and lies on the same side of these as the sum. (Round to odd: Boldo, Melquiond, Emulation of
// a FMA and correctly rounded sums: proved algorithms using rounding to odd, IEEE Trans. Comput. 57, 2008.)
template <int N>
TUTTI_INLINE Double<N> to_odd(Double<N> value, Double<N> rest) {
  const Long<N> bits = (Long<N>)value;
  const Long<N> inexact = (rest > 0) | (rest < 0);
  const Long<N> away = ((Long<N>)rest ^ bits) < 0 ? Long<N>{} - 1 : Long<N>{} + 1;
  return (Double<N>)(bits + (inexact & ~(bits << 63 >> 63) & away));
}

// A comparison of doubles for their floats.
template <int N>
TUTTI_INLINE SignedWord<N> to_words(Long<N> truth) {
  using Halves = Vector<int32_t, 2 * N>;
  if constexpr (N == 8)
    return __builtin_shufflevector((Halves)truth, (Halves)truth, 0, 2, 4, 6, 8, 10, 12, 14);
  else if constexpr (N == 4)
    return __builtin_shufflevector((Halves)truth, (Halves)truth, 0, 2, 4, 6);
  else
    return __builtin_convertvector(truth, SignedWord<N>);
}

// The same from double to float, which then rounds to 16 bits as `value` does. Also where float has denormals.
template <int N>
TUTTI_INLINE Single<N> to_odd_float(Double<N> value) {
#if defined(__AVX512BW__)
  if constexpr (N == 8) {
    const __m256 cut = _mm512_cvt_roundpd_ps((__m512d)value, _MM_FROUND_TO_ZERO | _MM_FROUND_NO_EXC);
    const __mmask8 inexact = _mm512_cmp_pd_mask(_mm512_cvtps_pd(cut), (__m512d)value, _CMP_NEQ_UQ);
    return (Single<N>)_mm256_mask_or_epi32((__m256i)cut, inexact, (__m256i)cut, _mm256_set1_epi32(1));
  }
#endif
  const Single<N> nearest = to_single<N>(value);
  const Double<N> back = to_double<N>(nearest);
  const SignedWord<N> beyond = to_words<N>(magnitude<N>(back) > magnitude<N>(value));
  const SignedWord<N> inexact = to_words<N>(back != value);
  return (Single<N>)(((SignedWord<N>)nearest + beyond) | (inexact & 1));
}

// An element type of kernel_vectors.hpp, summed in double.
template <typename E, uint32_t kType, int kPrecision>
struct Exact : E {
  using Base = E;
  static constexpr uint32_t dtype = kType;
  static constexpr int precision = kPrecision;
  static constexpr bool is_double = kType == TUTTI_FLOAT64;
  // `value` is rounded, or rounded to odd.
  template <int N>
  TUTTI_INLINE static Vector<typename E::Stored, N> narrow(Double<N> value) {
    if constexpr (is_double)
      return E::template narrow<N>(value);
    else if constexpr (kType == TUTTI_FLOAT32)
      return E::template narrow<N>(to_single<N>(value));
    else
      return E::template narrow<N>(to_odd_float<N>(value));
  }
};
template <typename E, uint32_t kType, int kPrecision>
constexpr int accumulator_bytes<Exact<E, kType, kPrecision>> = 8;
using ExactFloat16 = Exact<Float16, TUTTI_FLOAT16, 11>;
using ExactBfloat16 = Exact<Bfloat16, TUTTI_BFLOAT16, 8>;
using ExactFloat32 = Exact<Plain<float>, TUTTI_FLOAT32, 24>;
using ExactFloat64 = Exact<Plain<double>, TUTTI_FLOAT64, 53>;

template <typename E>
struct ExactFold {
  const void* const* srcs;
  uint32_t n;
  uint64_t divisor;
  Divisor by;
  int32_t most_spread;  // of exponents on level 1

  ExactFold(const void* const* sources, uint32_t nsrcs, uint64_t div)
      : srcs(sources), n(nsrcs), divisor(div), by(div), most_spread(53 - E::precision - growth(nsrcs)) {}

  // ceil(log2 n): a sum of n numbers has at most as many bits more.
  static int growth(uint32_t n) { return n > 1 ? 32 - __builtin_clz(n - 1) : 0; }

  template <typename Access>
  TUTTI_INLINE auto load(Access access, uint32_t k, uint64_t i) const {
    return E::template widen<Access::lanes>(
        access.template load<typename E::Stored>(static_cast<const char*>(srcs[k]) + i * sizeof(typename E::Stored)));
  }

  template <typename Access>
  TUTTI_INLINE auto operator()(Access access, uint64_t i) const {
    constexpr int N = Access::lanes;
    if constexpr (E::is_double) {
      return E::template narrow<N>(cascade(access, i));
    } else {
      Double<N> sum{};
      if (!add_in_range(access, i, &sum)) [[unlikely]] {
        double settled[N];
        settle(access, i, settled);
        __builtin_memcpy(&sum, settled, sizeof settled);
      } else if (by.inverse != 0) {
        sum = sum * by.inverse;
      } else if (by.value != 0) {
        sum = sum / by.value;
      }
      return E::template narrow<N>(sum);
    }
  }

 private:
  // Level 1. Infinities and NaN come out of the additions as the contract has them.
  template <typename Access>
  TUTTI_INLINE bool add_in_range(Access access, uint64_t i, Double<Access::lanes>* sum) const {
    constexpr int N = Access::lanes;
    Single<N> x = load(access, 0, i);
    *sum = to_double<N>(x);
    Word<N> greatest = (Word<N>)x & 0x7fffffffu, least = greatest - 1u;  // 0 is 2^32 - 1 among the least
    for (uint32_t k = 1; k < n; ++k) {
      x = load(access, k, i);
      *sum += to_double<N>(x);
      if constexpr (kRanges) {
        const Word<N> size = (Word<N>)x & 0x7fffffffu;
        greatest = greatest > size ? greatest : size;
        least = least < size - 1u ? least : size - 1u;
      }
    }
    if constexpr (!kRanges) return true;
    const SignedWord<N> spread = (SignedWord<N>)(greatest >> 23) - (SignedWord<N>)(least >> 23);
    return all<int32_t, N>((spread <= most_spread) | ((SignedWord<N>)greatest >= 0x7f800000));
  }
  static constexpr bool kRanges = E::dtype != TUTTI_FLOAT16;

  // Levels 2 and 3: a double that rounds to E as the result does.
  template <typename Access>
  TUTTI_INLINE Double<Access::lanes> cascade(Access access, uint64_t i) const {
    constexpr int N = Access::lanes;
    Double<N> sum = as_double<N>(load(access, 0, i)), errors{}, bound{};
    for (uint32_t k = 1; k < n; ++k) {
      Double<N> x = as_double<N>(load(access, k, i));
      two_sum<N>(sum, x);
      two_sum<N>(errors, x);
      bound += magnitude<N>(x);
    }
    correct<N>(sum, errors);
    Enclosed<N> result{sum, errors, bound};
    if (by.value != 0) result = quotient<N>(result);
    const Long<N> sure = certain<N>(result);
    Double<N> value = E::is_double ? result.high : to_odd<N>(result.high, result.low);
    if (!all<int64_t, N>(sure)) [[unlikely]] {
      for (int lane = 0; lane < N; ++lane)
        if (!sure[lane]) value[lane] = wide_sum(E::dtype, srcs, n, i + static_cast<uint64_t>(lane), divisor);
    }
    return value;
  }
  // Not inlined: it is rare. Vectors do not cross calls.
  template <typename Access>
  [[gnu::noinline]] void settle(Access access, uint64_t i, double* settled) const {
    const Double<Access::lanes> value = cascade(access, i);
    __builtin_memcpy(settled, &value, sizeof value);
  }

  template <int N, typename V>
  TUTTI_INLINE static Double<N> as_double(V v) {
    if constexpr (E::is_double)
      return v;
    else
      return to_double<N>(v);
  }

  // x = high + low + e, so with the quotient q of high, its remainder r, s + t = r + low, the quotient d of s and its
  // remainder u: x / divisor = q + d + (u + t + e) / divisor. The last term is less than |u| + |t| + |e|: the bound.
  template <int N>
  TUTTI_INLINE Enclosed<N> quotient(Enclosed<N> x) const {
    Enclosed<N> y;
    if (by.inverse != 0) {
      // Products are exact but for denormal quotients. There x.low is 0, so that high is rounded once, or its product
      // is not exact: then bound is at least the least number, and nothing is certain.
      y.high = x.high * by.inverse;
      y.low = x.low * by.inverse;
      y.bound = magnitude<N>(x.low - y.low * by.value) + x.bound;
    } else {
      y.high = x.high / by.value;
      Double<N> rest = remainder<N>(x.high, y.high, by.value);
      two_sum<N>(rest, x.low);
      y.low = rest / by.value;
      y.bound = magnitude<N>(remainder<N>(rest, y.low, by.value)) + magnitude<N>(x.low) + x.bound;
      correct<N>(y.high, y.low);
    }
    return y;
  }

  // Do all numbers that x may be round alike? For double: rounding is monotonic, so they do if those somewhat beyond
  // the limits round to `high`; the last term covers the rounding of low + margin. Else by rounding to odd: they do if
  // all lie on one side of `high`.
  template <int N>
  TUTTI_INLINE static Long<N> certain(const Enclosed<N>& x) {
    const Double<N> twice = x.bound + x.bound;
    if constexpr (E::is_double) {
      const Double<N> margin = twice + 0x1p-51 * magnitude<N>(x.low);
      return (x.bound == 0) | ((x.high + (x.low + margin) == x.high) & (x.high + (x.low - margin) == x.high));
    } else {
      return (x.bound == 0) | (magnitude<N>(x.low) > twice);
    }
  }
};

}  // namespace
}  // namespace tutti::core
