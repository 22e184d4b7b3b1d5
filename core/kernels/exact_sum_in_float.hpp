// SPDX-License-Identifier: Apache-2.0
//
// Level 0 of exact sums (exact_sum.hpp), for 16-bit floats: the sum in float, as many elements at a time as a vector
// holds 16-bit words. Most numbers of a model go this way; the others go on to level 1.
//
// G, L, p, u, d, q and m are those of level 1. n sources are below 2^24 u if G - L <= 24 - p - ceil(log2 n), so no
// addition rounds. None overflows if n 2^(G+1) is at most 2^128. A division by d <= 2^(22-p) and its second rounding
// are harmless for the reasons of level 1, with 24 in place of 53. Where q is a denormal float, its rounding moves it
// by at most 2^-150, and q is m or at least 2^-134 / d >= 2^-148 away from it.
//
// The test of the range looks at 16-bit words: a number's bits without the sign, shifted left by 1, so an exponent
// above a fraction. If the greatest word is at most M 2^f above the least, where exponents begin at bit f, then
// G - L <= M. Each number's word less 1 goes into the least one, so that a zero, which is a multiple of anything,
// becomes the greatest word. This counts a power of two among the numbers of the exponent below, which is safe.
#pragma once

#include "kernels/exact_sum.hpp"

namespace tutti::core {
namespace {

template <int N>
using Short = Vector<uint16_t, N>;

// A part of the elements of a step.
template <int M, int N>
TUTTI_INLINE Whole<M> part(Whole<N>, uint32_t) {
  return {};
}
#if defined(__AVX512BW__)
template <int M, int N>
TUTTI_INLINE Masked<M> part(Masked<N> whole, uint32_t first) {
  const uint32_t rest = whole.elements > first ? whole.elements - first : 0;
  return {rest < M ? rest : M};
}
#endif

template <typename V>
TUTTI_INLINE bool all_words(V truth) {
#if defined(__AVX512BW__)
  if constexpr (sizeof truth == 64) return _mm512_movepi8_mask((__m512i)truth) == UINT64_MAX;
#endif
  return all<int32_t, sizeof truth / 4>((SignedWord<sizeof truth / 4>)truth);
}

// 2 N elements as two vectors of floats: of bfloat16 those at even places and those at odd ones, else the halves.
template <int N>
struct FloatPair {
  Single<N> first, second;
};

// E: ExactFloat16 or ExactBfloat16.
template <typename E>
struct InFloat : E {
  static constexpr int word = vector_bytes / 2, half = word / 2;
  static constexpr bool is_bfloat = E::dtype == TUTTI_BFLOAT16;
  static constexpr int fraction_place = is_bfloat ? 8 : 11;  // of the exponent in a shifted word
  static constexpr uint32_t infinity = is_bfloat ? 0xff : 0x1f;

  template <typename Access>
  TUTTI_INLINE static FloatPair<half> widen(Access access, const char* from, Short<word> v) {
    if constexpr (is_bfloat) {
      return {(Single<half>)((Word<half>)v << 16), (Single<half>)((Word<half>)v & 0xffff0000u)};
    } else {
      return {E::template widen<half>(part<half>(access, 0).template load<uint16_t>(from)),
              E::template widen<half>(part<half>(access, half).template load<uint16_t>(from + 2 * half))};
    }
  }
  // No NaN comes here.
  TUTTI_INLINE static Short<word> narrow(FloatPair<half> v) {
    if constexpr (is_bfloat) {
      const auto rounded = [](Single<half> x) {
        const Word<half> bits = (Word<half>)x;
        return bits + 0x7fffu + ((bits >> 16) & 1u);
      };
      return (Short<word>)((rounded(v.first) >> 16) | (rounded(v.second) & 0xffff0000u));
    } else {
      const Short<half> parts[] = {E::Base::template narrow<half>(v.first), E::Base::template narrow<half>(v.second)};
      Short<word> joined;
      __builtin_memcpy(&joined, parts, sizeof joined);
      return joined;
    }
  }
};
template <typename E>
constexpr int accumulator_bytes<InFloat<E>> = 2;

template <typename E>
class FloatFold {
  using F = InFloat<E>;
  static constexpr int word = F::word, half = F::half;

 public:
  FloatFold(const void* const* srcs, uint32_t n, uint64_t divisor)
      : exact_(srcs, n, divisor),
        divisor_(static_cast<float>(exact_.by.value)),
        inverse_(static_cast<float>(exact_.by.inverse)),
        bits_(24 - E::precision - ExactFold<E>::growth(n)),
        most_spread_(static_cast<uint16_t>((bits_ > 0 ? bits_ : 0) << F::fraction_place)),
        greatest_(static_cast<uint16_t>((F::infinity - ExactFold<E>::growth(n)) << F::fraction_place)) {}

  // Does the division allow it, and is the range wide enough to be worth a try?
  bool serves() const { return bits_ >= least_bits && exact_.divisor <= uint64_t{1} << (22 - E::precision); }

  template <typename Access>
  TUTTI_INLINE auto operator()(Access access, uint64_t i) const {
    if constexpr (Access::lanes != word) {
      return exact_(access, i);  // the edges of paths that have no masks
    } else {
      FloatPair<half> sum;
      if (pause_ == 0 && add_in_range(access, i, &sum)) [[likely]] {
        next_pause_ = 0;
        if (inverse_ != 0)
          sum.first *= inverse_, sum.second *= inverse_;
        else if (divisor_ != 0)
          sum.first /= divisor_, sum.second /= divisor_;
        return F::narrow(sum);
      }
      Short<word> settled;
      settle(access, i, reinterpret_cast<uint16_t*>(&settled));
      return settled;
    }
  }

 private:
  template <typename Access>
  TUTTI_INLINE bool add_in_range(Access access, uint64_t i, FloatPair<half>* sum) const {
    Short<word> greatest{}, least = greatest - uint16_t{1};
    for (uint32_t k = 0; k < exact_.n; ++k) {
      const char* from = static_cast<const char*>(exact_.srcs[k]) + i * sizeof(uint16_t);
      const Short<word> stored = access.template load<uint16_t>(from);
      const FloatPair<half> x = F::widen(access, from, stored);
      sum->first = k ? sum->first + x.first : x.first;
      sum->second = k ? sum->second + x.second : x.second;
      const Short<word> size = stored + stored, less = size - uint16_t{1};
      greatest = greatest > size ? greatest : size;
      least = least < less ? least : less;
    }
    const Short<word> spread = greatest - least;  // 1 if all are zeros
    return all_words((spread <= most_spread_) & (greatest < greatest_));
  }

  // Levels 1 to 3. Where a vector fails the next ones may, too: after each failure in a row level 0 pauses for longer.
  template <typename Access>
  [[gnu::noinline]] void settle(Access access, uint64_t i, uint16_t* settled) const {
    if (pause_ > 0)
      --pause_;
    else
      pause_ = next_pause_, next_pause_ = 2 * next_pause_ < 63 ? 2 * next_pause_ + 1 : 63;
    constexpr int step = vector_bytes / accumulator_bytes<E>;
    for (uint32_t first = 0; first < word; first += step) {
      const Short<step> some = exact_(part<step>(access, first), i + first);
      __builtin_memcpy(settled + first, &some, sizeof some);
    }
  }

  // Four or eight normally distributed numbers seldom span more binades.
  static constexpr int least_bits = 11;

  ExactFold<E> exact_;
  float divisor_, inverse_;
  int bits_;  // M: G - L is at most this
  uint16_t most_spread_, greatest_;
  mutable uint32_t pause_ = 0, next_pause_ = 0;  // vectors
};

}  // namespace
}  // namespace tutti::core
