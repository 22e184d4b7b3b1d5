// SPDX-License-Identifier: Apache-2.0
//
// Vectors of one instruction set: types, loads and stores, conversions, operators. Written once with GCC's vector
// extension and included by each kernels_<path>.cpp, whose flags decide what it compiles to. Everything is in an
// unnamed namespace and nothing here instantiates library code: a function that the linker merged across files would
// bring AVX-512 instructions to CPUs that lack them.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tutti::core {
namespace {

#define TUTTI_INLINE [[gnu::always_inline]] inline

#if defined(__AVX512BW__)
constexpr int vector_bytes = 64;
#elif defined(__AVX2__)
constexpr int vector_bytes = 32;
#else
constexpr int vector_bytes = 16;
#endif

template <typename T, int N>
struct VectorType {
  typedef T type __attribute__((vector_size(N * sizeof(T))));
};
template <typename T, int N>
using Vector = typename VectorType<T, N>::type;

// How a step reaches memory. Whole: N elements, the main loop's. Edge: N elements outside the main loop, where stores
// are never streaming. Masked: the first elements of a vector, by mask.
template <int N>
struct Whole {
  static constexpr int lanes = N;
  template <typename T>
  TUTTI_INLINE Vector<T, N> load(const char* from) const {
    Vector<T, N> v;
    __builtin_memcpy(&v, from, sizeof v);
    return v;
  }
  template <typename T>
  TUTTI_INLINE void store(char* to, Vector<T, N> v) const {
    __builtin_memcpy(to, &v, sizeof v);
  }
  // `to` is a multiple of the vector's size.
  template <typename T>
  TUTTI_INLINE void stream(char* to, Vector<T, N> v) const {
#if defined(__AVX512BW__)
    if constexpr (sizeof v == 64) return _mm512_stream_si512(reinterpret_cast<__m512i*>(to), (__m512i)v);
#endif
#if defined(__AVX2__)
    if constexpr (sizeof v == 32) return _mm256_stream_si256(reinterpret_cast<__m256i*>(to), (__m256i)v);
#endif
#if defined(__x86_64__)
    if constexpr (sizeof v == 16) return _mm_stream_si128(reinterpret_cast<__m128i*>(to), (__m128i)v);
    if constexpr (sizeof v == 8) {
      long long word;
      __builtin_memcpy(&word, &v, 8);
      return _mm_stream_si64(reinterpret_cast<long long*>(to), word);
    }
#endif
    store<T>(to, v);
  }
};
template <int N>
struct Edge : Whole<N> {
  template <typename T>
  TUTTI_INLINE void stream(char* to, Vector<T, N> v) const {
    this->template store<T>(to, v);
  }
};
#if defined(__AVX512BW__)
template <int N>
struct Masked {
  static constexpr int lanes = N;
  uint32_t elements;
  template <typename T>
  TUTTI_INLINE uint64_t mask() const {
    return (uint64_t{1} << (elements * sizeof(T))) - 1;  // elements < N, so fewer than 64 bytes
  }
  template <typename T>
  TUTTI_INLINE Vector<T, N> load(const char* from) const {
    if constexpr (N * sizeof(T) == 64) return (Vector<T, N>)_mm512_maskz_loadu_epi8(mask<T>(), from);
    if constexpr (N * sizeof(T) == 32)
      return (Vector<T, N>)_mm256_maskz_loadu_epi8(static_cast<__mmask32>(mask<T>()), from);
    if constexpr (N * sizeof(T) == 16)
      return (Vector<T, N>)_mm_maskz_loadu_epi8(static_cast<__mmask16>(mask<T>()), from);
  }
  template <typename T>
  TUTTI_INLINE void store(char* to, Vector<T, N> v) const {
    if constexpr (N * sizeof(T) == 64) _mm512_mask_storeu_epi8(to, mask<T>(), (__m512i)v);
    if constexpr (N * sizeof(T) == 32) _mm256_mask_storeu_epi8(to, static_cast<__mmask32>(mask<T>()), (__m256i)v);
    if constexpr (N * sizeof(T) == 16) _mm_mask_storeu_epi8(to, static_cast<__mmask16>(mask<T>()), (__m128i)v);
  }
  template <typename T>
  TUTTI_INLINE void stream(char* to, Vector<T, N> v) const {
    store<T>(to, v);
  }
};
#endif

template <int N>
using Word = Vector<uint32_t, N>;
template <int N>
using SignedWord = Vector<int32_t, N>;
template <int N>
using Single = Vector<float, N>;

// Any NaN becomes the one NaN of the contract.
template <typename T, int N>
TUTTI_INLINE Vector<T, N> canonical(Vector<T, N> v) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  constexpr Bits quiet = static_cast<Bits>(sizeof(T) == 4 ? 0x7fc00000u : 0x7ff8000000000000u);
  return v == v ? v : (Vector<T, N>)(Vector<Bits, N>{} + quiet);
}

// The size of the type in which an element is computed.
template <typename E>
constexpr int accumulator_bytes = static_cast<int>(sizeof(typename E::Accumulator));

// The element types: what is stored, what is computed in, and the way from one to the other.
template <typename T>
struct Plain {
  using Stored = T;
  using Accumulator = T;
  template <int N>
  TUTTI_INLINE static Vector<T, N> widen(Vector<T, N> v) {
    return v;
  }
  template <int N>
  TUTTI_INLINE static Vector<T, N> narrow(Vector<T, N> v) {
    if constexpr (std::is_floating_point_v<T>) return canonical<T, N>(v);
    return v;
  }
};

struct Bfloat16 {
  using Stored = uint16_t;
  using Accumulator = float;
  template <int N>
  TUTTI_INLINE static Single<N> widen(Vector<uint16_t, N> v) {
    return (Single<N>)(__builtin_convertvector(v, Word<N>) << 16);
  }
  template <int N>
  TUTTI_INLINE static Vector<uint16_t, N> narrow(Single<N> v) {
    const Word<N> bits = (Word<N>)canonical<float, N>(v);
    return __builtin_convertvector((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16, Vector<uint16_t, N>);
  }
};

struct Float16 {
  using Stored = uint16_t;
  using Accumulator = float;
  template <int N>
  TUTTI_INLINE static Single<N> widen(Vector<uint16_t, N> v) {
#if defined(__AVX512BW__)
    if constexpr (N == 16) return (Single<N>)_mm512_cvtph_ps((__m256i)v);
#endif
#if defined(__F16C__)
    if constexpr (N == 8) return (Single<N>)_mm256_cvtph_ps((__m128i)v);
    if constexpr (N == 4) return (Single<N>)_mm_cvtph_ps(_mm_cvtsi64_si128((long long)v));
#endif
    const Word<N> half = __builtin_convertvector(v, Word<N>);
    const Word<N> sign = (half & 0x8000u) << 16;
    const Word<N> magnitude = half & 0x7fffu;
    const Word<N> shifted = magnitude << 13;
    // A denormal's mantissa is put below an exponent of 2^-14, which is then taken off again: no float denormals on the
    // way.
    const Single<N> tiny = (Single<N>)(shifted + (113u << 23)) - 0x1p-14f;
    const SignedWord<N> order = (SignedWord<N>)magnitude;
    Word<N> bits = shifted + (112u << 23);
    bits = order < 0x400 ? (Word<N>)tiny : bits;
    bits = order >= 0x7c00 ? shifted + (224u << 23) : bits;
    return (Single<N>)(bits | sign);
  }
  template <int N>
  TUTTI_INLINE static Vector<uint16_t, N> narrow(Single<N> v) {
    v = canonical<float, N>(v);
#if defined(__AVX512BW__)
    if constexpr (N == 16)
      return (Vector<uint16_t, N>)_mm512_cvtps_ph((__m512)v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
#endif
#if defined(__F16C__)
    if constexpr (N == 8) return (Vector<uint16_t, N>)_mm256_cvtps_ph((__m256)v, _MM_FROUND_TO_NEAREST_INT);
    if constexpr (N == 4)
      return (Vector<uint16_t, N>)_mm_cvtsi128_si64(_mm_cvtps_ph((__m128)v, _MM_FROUND_TO_NEAREST_INT));
#endif
    const Word<N> bits = (Word<N>)v;
    const Word<N> sign = (bits >> 16) & 0x8000u;
    const Word<N> magnitude = bits & 0x7fffffffu;
    const SignedWord<N> order = (SignedWord<N>)magnitude;
    // Below 2^-14 the sum with 0.5 rounds at the half's last place: both have a unit of 2^-24.
    const Word<N> tiny = (Word<N>)((Single<N>)magnitude + 0.5f) - 0x3f000000u;
    Word<N> half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    half = order < 0x38800000 ? tiny : half;
    half = order >= 0x47800000 ? Word<N>{} + 0x7c00u : half;
    half = order > 0x7f800000 ? Word<N>{} + 0x7e00u : half;
    return __builtin_convertvector(half | sign, Vector<uint16_t, N>);
  }
};

// Bytes to words; the compiler would do it one by one.
template <int N>
TUTTI_INLINE Word<N> words_of(Vector<uint8_t, N> v) {
#if defined(__AVX512BW__)
  if constexpr (N == 16) return (Word<N>)_mm512_cvtepu8_epi32((__m128i)v);
#endif
#if defined(__AVX2__)
  if constexpr (N == 8) {
    long long low = 0;
    __builtin_memcpy(&low, &v, sizeof v);
    return (Word<N>)_mm256_cvtepu8_epi32(_mm_cvtsi64_si128(low));
  }
#endif
  return __builtin_convertvector(v, Word<N>);
}

// The 8-bit floats: `kFraction` stored bits of the fraction. kFinite: without infinities, the last pattern is NaN.
// Rounding beyond the largest number gives infinity, or NaN where there is none.
template <int kFraction, bool kFinite>
struct Float8 {
  using Stored = uint8_t;
  using Accumulator = float;
  static constexpr uint32_t bias = (1u << (6 - kFraction)) - 1, rebias = 127 - bias;
  static constexpr uint32_t beyond = kFinite ? 0x7fu : 0x80u - (1u << kFraction);
  static constexpr uint32_t nan = kFinite ? 0x7fu : beyond | 1u << (kFraction - 1);
  // A float below the least normal number of the type, plus this, has its last place where the type has it.
  static constexpr uint32_t round_denormal = (rebias + 1 - kFraction + 23) << 23;
  template <int N>
  TUTTI_INLINE static Single<N> widen(Vector<uint8_t, N> v) {
    const Word<N> small = words_of<N>(v);
    const Word<N> sign = (small & 0x80u) << 24, magnitude = small & 0x7fu;
    const SignedWord<N> order = (SignedWord<N>)magnitude;
    const Word<N> shifted = magnitude << (23 - kFraction);
    // As for Float16: a denormal gets the least normal exponent, which is then taken off again.
    constexpr uint32_t least = (rebias + 1) << 23;
    const Single<N> tiny = (Single<N>)(shifted + least) - __builtin_bit_cast(float, least);
    Word<N> bits = shifted + (rebias << 23);
    bits = order < (1 << kFraction) ? (Word<N>)tiny : bits;
    if constexpr (kFinite)
      bits = order == 0x7f ? Word<N>{} + 0x7fc00000u : bits;
    else
      bits = order >= static_cast<int32_t>(beyond) ? bits | 0x7f800000u : bits;
    return (Single<N>)(bits | sign);
  }
  template <int N>
  TUTTI_INLINE static Vector<uint8_t, N> narrow(Single<N> v) {
    const Word<N> raw = (Word<N>)v;
    const Word<N> sign = (raw >> 24) & 0x80u, magnitude = raw & 0x7fffffffu;
    const SignedWord<N> order = (SignedWord<N>)magnitude;
    const Word<N> tiny = (Word<N>)((Single<N>)magnitude + __builtin_bit_cast(float, round_denormal)) - round_denormal;
    const Word<N> even = (magnitude >> (23 - kFraction)) & 1u;
    Word<N> small = (magnitude + ((1u << (22 - kFraction)) - 1) + even - (rebias << 23)) >> (23 - kFraction);
    small = order < static_cast<int32_t>((rebias + 1) << 23) ? tiny : small;
    const SignedWord<N> size = (SignedWord<N>)small;
    small = size > static_cast<int32_t>(beyond) ? Word<N>{} + beyond : small;
    small = small | sign;
    small = order > 0x7f800000 ? Word<N>{} + nan : small;
    if constexpr (kFinite) small = (small & 0x7fu) == 0x7fu ? Word<N>{} + nan : small;  // NaN has no sign
    return __builtin_convertvector(small, Vector<uint8_t, N>);
  }
};

// Integers are added and multiplied as unsigned ones: they wrap.
template <typename T>
struct Wrapping {
  using type = T;
};
template <std::integral T>
struct Wrapping<T> {
  using type = std::make_unsigned_t<T>;
};

struct Sum {
  static constexpr bool ordered = false, divides = true;
  template <typename T, int N>
  TUTTI_INLINE static Vector<T, N> apply(Vector<T, N> a, Vector<T, N> b) {
    using U = Vector<typename Wrapping<T>::type, N>;
    return (Vector<T, N>)((U)a + (U)b);
  }
};
struct Prod {
  static constexpr bool ordered = false, divides = true;
  template <typename T, int N>
  TUTTI_INLINE static Vector<T, N> apply(Vector<T, N> a, Vector<T, N> b) {
    using U = Vector<typename Wrapping<T>::type, N>;
    return (Vector<T, N>)((U)a * (U)b);
  }
};
template <bool Greater>
struct Extreme {
  static constexpr bool ordered = true, divides = true;
  template <typename T, int N>
  TUTTI_INLINE static Vector<T, N> apply(Vector<T, N> a, Vector<T, N> b) {
    Vector<T, N> best = (Greater ? a > b : a < b) ? a : b;
    if constexpr (std::is_floating_point_v<T>) {
      using Bits = Vector<std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>, N>;
      // Equal operands differ at most in the sign of zero; + is the greater one.
      const Bits both = Greater ? (Bits)a & (Bits)b : (Bits)a | (Bits)b;
      best = a == b ? (Vector<T, N>)both : best;
      best = ((a != a) | (b != b)) ? a + b : best;
    }
    return best;
  }
};
using Min = Extreme<false>;
using Max = Extreme<true>;

// Operators on bits. Logical ones look at whether an element is 0, and give 0 or 1. T is unsigned.
enum class BitOperator { both, either, one };
template <BitOperator kind, bool logical>
struct Bitwise {
  static constexpr bool ordered = false, divides = false;
  template <typename T, int N>
  TUTTI_INLINE static Vector<T, N> truth(Vector<T, N> v) {
    const Vector<T, N> zero{};
    return (Vector<T, N>)(v != zero) & (zero + T{1});
  }
  template <typename T, int N>
  TUTTI_INLINE static Vector<T, N> apply(Vector<T, N> a, Vector<T, N> b) {
    if constexpr (logical) a = truth<T, N>(a), b = truth<T, N>(b);
    if constexpr (kind == BitOperator::both) return a & b;
    if constexpr (kind == BitOperator::either) return a | b;
    if constexpr (kind == BitOperator::one) return a ^ b;
  }
};
template <bool logical>
using And = Bitwise<BitOperator::both, logical>;
template <bool logical>
using Or = Bitwise<BitOperator::either, logical>;
template <bool logical>
using Xor = Bitwise<BitOperator::one, logical>;

// v / divisor. Integers of up to 32 bits go through a floating-point type with at least as many bits again as the
// quotient needs (8 in 24, 16 in 24, 32 in 53): a quotient that is no whole number is at least 1/divisor away from one,
// its rounding error is smaller, so truncation is exact.
template <typename T, int N>
TUTTI_INLINE Vector<T, N> divide(Vector<T, N> v, uint64_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return v / static_cast<T>(divisor);
  } else if constexpr (sizeof(T) < 8) {
    using Real = std::conditional_t<sizeof(T) == 4, double, float>;
    const Real real = static_cast<Real>(divisor);
    T lanes[N];
    __builtin_memcpy(lanes, &v, sizeof v);
    for (int i = 0; i < N; ++i) lanes[i] = static_cast<T>(static_cast<Real>(lanes[i]) / real);
    __builtin_memcpy(&v, lanes, sizeof v);
    return v;
  } else {
    for (int i = 0; i < N; ++i) {
      const bool negative = v[i] < 0;
      const uint64_t bits = static_cast<uint64_t>(v[i]);
      const uint64_t quotient = (negative ? 0 - bits : bits) / divisor;
      v[i] = static_cast<T>(negative ? 0 - quotient : quotient);
    }
    return v;
  }
}

}  // namespace
}  // namespace tutti::core
