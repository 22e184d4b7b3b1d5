// SPDX-License-Identifier: Apache-2.0
//
// The arithmetic of a reduction, element by element: the rounding rule of every data type and operator, for authors of
// device plugins. Results are exact functions of the inputs' bits, the same as those of the core's host kernels:
//
//  - dst = src0 op src1 op ..., a left fold in the accumulator type (float for the 8 and 16-bit floats, else the type
//    itself), optionally divided, rounded once to nearest even. Too large for float8_e4m3, which has no infinity, is
//    NaN.
//  - Complex numbers: sum and division by parts; (a + bi) * (c + di) = (ac - bd) + (ad + bc)i, each operation rounded.
//  - Integers wrap; an integer is divided with truncation toward zero.
//  - Logical operators give 0 or 1; on bool the operators on bits do so too.
//  - min and max: NaN if any operand is NaN; -0 < +0.
//  - minloc and maxloc: the value of min or max, and the lowest index of the operands that have it.
//  - Every NaN that comes out is the type's positive quiet NaN without payload.
//
// Compiles for the host and, under a CUDA compiler, for its devices. The floating-point environment must be the default
// one: round to nearest, denormals kept, no contraction of a * b + c.
#pragma once

#include <tutti/plugin/types.h>

#include <cstdint>
#include <cstring>
#include <type_traits>

#if defined(__CUDACC__)
#define TUTTI_ELEMENTWISE __host__ __device__ __forceinline__
#else
#define TUTTI_ELEMENTWISE inline
#endif

namespace tutti::sdk {

template <typename To, typename From>
TUTTI_ELEMENTWISE To bits_as(From from) {
  static_assert(sizeof(To) == sizeof(From));
  To to;
  memcpy(&to, &from, sizeof to);
  return to;
}

// An element type: what is stored, what is computed in, and the way from one to the other.
template <typename T>
struct PlainElement {
  using Stored = T;
  using Accumulator = T;
  static TUTTI_ELEMENTWISE T widen(T v) { return v; }
  static TUTTI_ELEMENTWISE T narrow(T v) {
    if constexpr (std::is_same_v<T, float>) return v == v ? v : bits_as<float>(0x7fc00000u);
    if constexpr (std::is_same_v<T, double>) return v == v ? v : bits_as<double>(uint64_t{0x7ff8000000000000u});
    return v;
  }
};

// A byte that is not 0 is true: its bits are those of 1.
struct BoolElement {
  using Stored = uint8_t;
  using Accumulator = uint8_t;
  static TUTTI_ELEMENTWISE uint8_t widen(uint8_t v) { return v != 0; }
  static TUTTI_ELEMENTWISE uint8_t narrow(uint8_t v) { return v; }
};

struct Bfloat16Element {
  using Stored = uint16_t;
  using Accumulator = float;
  static TUTTI_ELEMENTWISE float widen(uint16_t v) { return bits_as<float>(uint32_t{v} << 16); }
  static TUTTI_ELEMENTWISE uint16_t narrow(float v) {
    if (!(v == v)) return 0x7fc0u;
    const uint32_t bits = bits_as<uint32_t>(v);
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
};

struct Float16Element {
  using Stored = uint16_t;
  using Accumulator = float;
  static TUTTI_ELEMENTWISE float widen(uint16_t v) {
    const uint32_t sign = (v & 0x8000u) << 16, magnitude = v & 0x7fffu;
    uint32_t bits;
    if (magnitude < 0x400u)  // denormal: put below an exponent of 2^-14, which is then taken off again
      bits = bits_as<uint32_t>(bits_as<float>((magnitude << 13) + (113u << 23)) - 6.103515625e-05f);
    else
      bits = (magnitude << 13) + ((magnitude >= 0x7c00u ? 224u : 112u) << 23);
    return bits_as<float>(bits | sign);
  }
  static TUTTI_ELEMENTWISE uint16_t narrow(float v) {
    if (!(v == v)) return 0x7e00u;
    const uint32_t bits = bits_as<uint32_t>(v);
    const uint32_t sign = (bits >> 16) & 0x8000u, magnitude = bits & 0x7fffffffu;
    uint32_t half;
    if (magnitude < 0x38800000u)  // below 2^-14 the sum with 0.5 rounds at the half's last place
      half = bits_as<uint32_t>(bits_as<float>(magnitude) + 0.5f) - 0x3f000000u;
    else if (magnitude >= 0x47800000u)
      half = 0x7c00u;
    else
      half = (magnitude + 0xfffu + ((magnitude >> 13) & 1u) - (112u << 23)) >> 13;
    return static_cast<uint16_t>(half | sign);
  }
};

// The 8-bit floats: `kFraction` stored bits of the fraction. kFinite: without infinities, the last pattern is NaN.
template <int kFraction, bool kFinite>
struct Float8Element {
  using Stored = uint8_t;
  using Accumulator = float;
  static constexpr uint32_t bias = (1u << (6 - kFraction)) - 1, rebias = 127 - bias;
  static constexpr uint32_t beyond = kFinite ? 0x7fu : 0x80u - (1u << kFraction);
  static constexpr uint32_t nan = kFinite ? 0x7fu : beyond | 1u << (kFraction - 1);
  static TUTTI_ELEMENTWISE float widen(uint8_t v) {
    const uint32_t sign = (v & 0x80u) << 24, magnitude = v & 0x7fu, shifted = magnitude << (23 - kFraction);
    uint32_t bits = shifted + (rebias << 23);
    if (magnitude < 1u << kFraction) {  // denormal: as for float16
      constexpr uint32_t least = (rebias + 1) << 23;
      bits = bits_as<uint32_t>(bits_as<float>(shifted + least) - bits_as<float>(least));
    } else if (kFinite ? magnitude == nan : magnitude >= beyond) {
      bits = kFinite ? 0x7fc00000u : bits | 0x7f800000u;
    }
    return bits_as<float>(bits | sign);
  }
  static TUTTI_ELEMENTWISE uint8_t narrow(float v) {
    if (!(v == v)) return nan;
    const uint32_t bits = bits_as<uint32_t>(v);
    const uint32_t sign = (bits >> 24) & 0x80u, magnitude = bits & 0x7fffffffu;
    uint32_t small;
    if (magnitude < (rebias + 1) << 23) {  // below the least normal number the sum rounds at the last place
      constexpr uint32_t shift = (rebias + 1 - kFraction + 23) << 23;
      small = bits_as<uint32_t>(bits_as<float>(magnitude) + bits_as<float>(shift)) - shift;
    } else {
      const uint32_t even = (magnitude >> (23 - kFraction)) & 1u;
      small = (magnitude + ((1u << (22 - kFraction)) - 1) + even - (rebias << 23)) >> (23 - kFraction);
    }
    if (small >= beyond) return static_cast<uint8_t>(kFinite ? nan : beyond | sign);
    return static_cast<uint8_t>(small | sign);
  }
};

template <typename T>
struct Complex {
  T real, imaginary;
};
template <typename T>
struct ComplexElement {
  using Stored = Complex<T>;
  using Accumulator = Complex<T>;
  static TUTTI_ELEMENTWISE Complex<T> widen(Complex<T> v) { return v; }
  static TUTTI_ELEMENTWISE Complex<T> narrow(Complex<T> v) {
    return {PlainElement<T>::narrow(v.real), PlainElement<T>::narrow(v.imaginary)};
  }
};

// A value and its place.
template <typename T, typename I>
struct Pair {
  T value;
  I index;
};
template <typename T, typename I>
struct PairElement {
  using Stored = Pair<T, I>;
  using Accumulator = Pair<T, I>;
  static TUTTI_ELEMENTWISE Stored widen(Stored v) { return v; }
  static TUTTI_ELEMENTWISE Stored narrow(Stored v) { return {PlainElement<T>::narrow(v.value), v.index}; }
};

// The element of a data type; void: not computed.
template <uint32_t Dtype>
struct ElementOf {
  using type = void;
};
template <>
struct ElementOf<TUTTI_INT8> {
  using type = PlainElement<int8_t>;
};
template <>
struct ElementOf<TUTTI_INT16> {
  using type = PlainElement<int16_t>;
};
template <>
struct ElementOf<TUTTI_INT32> {
  using type = PlainElement<int32_t>;
};
template <>
struct ElementOf<TUTTI_INT64> {
  using type = PlainElement<int64_t>;
};
template <>
struct ElementOf<TUTTI_UINT8> {
  using type = PlainElement<uint8_t>;
};
template <>
struct ElementOf<TUTTI_UINT16> {
  using type = PlainElement<uint16_t>;
};
template <>
struct ElementOf<TUTTI_UINT32> {
  using type = PlainElement<uint32_t>;
};
template <>
struct ElementOf<TUTTI_UINT64> {
  using type = PlainElement<uint64_t>;
};
template <>
struct ElementOf<TUTTI_FLOAT16> {
  using type = Float16Element;
};
template <>
struct ElementOf<TUTTI_BFLOAT16> {
  using type = Bfloat16Element;
};
template <>
struct ElementOf<TUTTI_FLOAT32> {
  using type = PlainElement<float>;
};
template <>
struct ElementOf<TUTTI_FLOAT64> {
  using type = PlainElement<double>;
};
template <>
struct ElementOf<TUTTI_FLOAT8_E4M3> {
  using type = Float8Element<3, true>;
};
template <>
struct ElementOf<TUTTI_FLOAT8_E5M2> {
  using type = Float8Element<2, false>;
};
template <>
struct ElementOf<TUTTI_BOOL> {
  using type = BoolElement;
};
template <>
struct ElementOf<TUTTI_COMPLEX64> {
  using type = ComplexElement<float>;
};
template <>
struct ElementOf<TUTTI_COMPLEX128> {
  using type = ComplexElement<double>;
};
template <>
struct ElementOf<TUTTI_FLOAT32_INT32> {
  using type = PairElement<float, int32_t>;
};
template <>
struct ElementOf<TUTTI_FLOAT64_INT64> {
  using type = PairElement<double, int64_t>;
};
// Tables over all types and operators go from first to last; what lies between and is not computed has a hole there.
constexpr uint32_t first_dtype = TUTTI_INT8, last_dtype = TUTTI_FLOAT64_INT64;
constexpr uint32_t first_fold = TUTTI_SUM, last_fold = TUTTI_MAXLOC;

// Is the fold computed for the type? TUTTI_AVG is none: it is a sum with a divisor.
constexpr bool has_fold(uint32_t dtype, uint32_t op) {
  const bool orders = op >= TUTTI_SUM && op <= TUTTI_MAX, bits = op >= TUTTI_BAND && op <= TUTTI_LXOR;
  if (dtype >= TUTTI_INT8 && dtype <= TUTTI_UINT64) return orders || bits;
  if (dtype >= TUTTI_FLOAT16 && dtype <= TUTTI_FLOAT8_E5M2) return orders;
  if (dtype == TUTTI_COMPLEX64 || dtype == TUTTI_COMPLEX128) return op == TUTTI_SUM || op == TUTTI_PROD;
  if (dtype == TUTTI_FLOAT32_INT32 || dtype == TUTTI_FLOAT64_INT64) return op == TUTTI_MINLOC || op == TUTTI_MAXLOC;
  return dtype == TUTTI_BOOL && bits;
}
// Masks for tutti_device_caps of a device that computes all of them.
constexpr uint64_t all_dtypes() {
  uint64_t mask = 0;
  for (uint32_t dtype = first_dtype; dtype <= last_dtype; ++dtype)
    for (uint32_t op = first_fold; op <= last_fold; ++op) mask |= uint64_t{has_fold(dtype, op)} << dtype;
  return mask;
}
constexpr uint64_t all_folds() {
  uint64_t mask = 0;
  for (uint32_t dtype = first_dtype; dtype <= last_dtype; ++dtype)
    for (uint32_t op = first_fold; op <= last_fold; ++op) mask |= uint64_t{has_fold(dtype, op)} << op;
  return mask;
}
// The bytes of an element; 0: none of the types above.
template <uint32_t Dtype>
constexpr uint32_t bytes_of_element() {
  using Element = typename ElementOf<Dtype>::type;
  if constexpr (std::is_void_v<Element>)
    return 0;
  else
    return sizeof(typename Element::Stored);
}

// Integers, bit by bit or as truth values. T is an accumulator type.
template <uint32_t Op, typename T>
TUTTI_ELEMENTWISE T combine_bits(T a, T b) {
  if constexpr (Op == TUTTI_BAND) return static_cast<T>(a & b);
  if constexpr (Op == TUTTI_BOR) return static_cast<T>(a | b);
  if constexpr (Op == TUTTI_BXOR) return static_cast<T>(a ^ b);
  const bool x = a != 0, y = b != 0;
  return static_cast<T>(Op == TUTTI_LAND ? x && y : Op == TUTTI_LOR ? x || y : x != y);
}

// One operator on accumulators. T is an accumulator type.
template <uint32_t Op, typename T>
TUTTI_ELEMENTWISE T combine(T a, T b) {
  if constexpr (Op >= TUTTI_BAND && Op <= TUTTI_LXOR) {
    return combine_bits<Op>(a, b);
  } else if constexpr (Op == TUTTI_SUM || Op == TUTTI_PROD) {
    if constexpr (std::is_floating_point_v<T>) {
      return Op == TUTTI_SUM ? a + b : a * b;
    } else {
      // As unsigned numbers of at least 32 bits: they wrap.
      using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
      return static_cast<T>(Op == TUTTI_SUM ? static_cast<U>(a) + static_cast<U>(b)
                                            : static_cast<U>(a) * static_cast<U>(b));
    }
  } else {
    constexpr bool greater = Op == TUTTI_MAX;
    if constexpr (std::is_floating_point_v<T>) {
      using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
      if (a != a || b != b) return a + b;
      // Equal operands differ at most in the sign of zero; + is the greater one.
      if (a == b)
        return bits_as<T>(
            static_cast<Bits>(greater ? bits_as<Bits>(a) & bits_as<Bits>(b) : bits_as<Bits>(a) | bits_as<Bits>(b)));
    }
    return (greater ? a > b : a < b) ? a : b;
  }
}

template <uint32_t Op, typename T>
TUTTI_ELEMENTWISE Complex<T> combine(Complex<T> a, Complex<T> b) {
  if constexpr (Op == TUTTI_SUM) return {a.real + b.real, a.imaginary + b.imaginary};
  return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
}

template <uint32_t Op, typename T, typename I>
TUTTI_ELEMENTWISE Pair<T, I> combine(Pair<T, I> a, Pair<T, I> b) {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  const T best = PlainElement<T>::narrow(combine < Op == TUTTI_MINLOC ? TUTTI_MIN : TUTTI_MAX > (a.value, b.value));
  const auto has_best = [&](T v) { return bits_as<Bits>(PlainElement<T>::narrow(v)) == bits_as<Bits>(best); };
  const bool first = has_best(a.value) && (!has_best(b.value) || a.index < b.index);
  return {best, first ? a.index : b.index};
}

// v / divisor, divisor > 0.
template <typename T>
TUTTI_ELEMENTWISE T divided(T v, uint64_t divisor) {
  if constexpr (std::is_floating_point_v<T>) {
    return v / static_cast<T>(divisor);
  } else if constexpr (std::is_unsigned_v<T>) {
    return static_cast<T>(v / divisor);
  } else {
    const uint64_t magnitude =
        v < 0 ? uint64_t{0} - static_cast<uint64_t>(static_cast<int64_t>(v)) : static_cast<uint64_t>(v);
    const uint64_t quotient = magnitude / divisor;
    return static_cast<T>(v < 0 ? uint64_t{0} - quotient : quotient);
  }
}

template <typename T>
TUTTI_ELEMENTWISE Complex<T> divided(Complex<T> v, uint64_t divisor) {
  return {divided(v.real, divisor), divided(v.imaginary, divisor)};
}

// Pairs have no average.
template <typename T, typename I>
TUTTI_ELEMENTWISE Pair<T, I> divided(Pair<T, I> v, uint64_t) {
  return v;
}

// Element i of the fold of n >= 1 sources. `load(k)` gives source k's stored element.
template <typename Element, uint32_t Op, typename Load>
TUTTI_ELEMENTWISE typename Element::Stored fold(uint32_t n, uint64_t divisor, const Load& load) {
  auto value = Element::widen(load(0u));
  for (uint32_t k = 1; k < n; ++k) value = combine<Op>(value, Element::widen(load(k)));
  if (divisor) value = divided(value, divisor);
  return Element::narrow(value);
}

}  // namespace tutti::sdk
