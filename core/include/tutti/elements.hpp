// SPDX-License-Identifier: Apache-2.0
//
// The data that the calls of tutti.hpp take: element types, with the small floats and the pairs, and contiguous ranges
// of them.
#pragma once

#include <tutti/plugin/types.h>

#include <bit>
#include <complex>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <tutti/float8.hpp>
#include <type_traits>

namespace tutti {

// IEEE 754 binary16: storage, 2 bytes. Arithmetic is in float: a float16 converts to one exactly. From float it rounds
// to nearest, ties to even; denormals, infinities and NaNs keep their meaning. A double passes through float, which
// rounds twice.
class float16 {
 public:
  float16() = default;
  constexpr explicit float16(float value) : bits_(rounded(std::bit_cast<uint32_t>(value))) {}
  static constexpr float16 from_bits(uint16_t bits) {
    float16 result;
    result.bits_ = bits;
    return result;
  }
  constexpr uint16_t bits() const { return bits_; }
  constexpr operator float() const {
    const uint32_t sign = (bits_ & 0x8000u) << 16, exponent = (bits_ >> 10) & 31u, fraction = bits_ & 0x3ffu;
    if (exponent == 0) return (sign ? -0x1p-24f : 0x1p-24f) * static_cast<float>(fraction);
    const uint32_t wide = exponent == 31 ? 255u : exponent + 112;
    return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
  }

 private:
  static constexpr uint16_t rounded(uint32_t bits) {
    const uint32_t sign = (bits >> 16) & 0x8000u, size = bits & 0x7fffffffu;
    uint32_t half = 0;
    if (size > 0x7f800000u) {  // NaN: quiet, with the first bits of its payload
      half = 0x7e00u | ((size >> 13) & 0x1ffu);
    } else if (size >= 0x477ff000u) {  // from 65520 on: infinity
      half = 0x7c00u;
    } else if (size >= 0x38800000u) {  // from 2^-14 on: normal
      const uint32_t rebiased = size - (112u << 23);
      half = (rebiased + 0xfffu + ((rebiased >> 13) & 1u)) >> 13;
    } else {  // the sum rounds at a multiple of 2^-24
      half = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3f000000u;
    }
    return static_cast<uint16_t>(sign | half);
  }
  uint16_t bits_ = 0;
};

// The upper half of a binary32: storage, 2 bytes. Converts as float16 does.
class bfloat16 {
 public:
  bfloat16() = default;
  constexpr explicit bfloat16(float value) : bits_(rounded(std::bit_cast<uint32_t>(value))) {}
  static constexpr bfloat16 from_bits(uint16_t bits) {
    bfloat16 result;
    result.bits_ = bits;
    return result;
  }
  constexpr uint16_t bits() const { return bits_; }
  constexpr operator float() const { return std::bit_cast<float>(static_cast<uint32_t>(bits_) << 16); }

 private:
  static constexpr uint16_t rounded(uint32_t bits) {
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>(bits >> 16 | 0x40u);  // NaN: quiet
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
  }
  uint16_t bits_ = 0;
};

// A value and where it was found, for Op::minloc and Op::maxloc.
struct float32_int32 {
  float value;
  int32_t index;
};
struct float64_int64 {
  double value;
  int64_t index;
};

namespace detail {

template <typename T>
constexpr uint32_t arithmetic_number() {
  if constexpr (std::is_floating_point_v<T>) {
    return sizeof(T) == 4 ? TUTTI_FLOAT32 : sizeof(T) == 8 ? TUTTI_FLOAT64 : 0;
  } else if constexpr (std::is_same_v<T, bool>) {
    return sizeof(bool) == 1 ? TUTTI_BOOL : 0;
  } else if constexpr (std::is_integral_v<T>) {
    constexpr uint32_t base = std::is_signed_v<T> ? TUTTI_INT8 : TUTTI_UINT8;
    return sizeof(T) > 8 ? 0 : base + static_cast<uint32_t>(std::countr_zero(sizeof(T)));
  } else {
    return 0;
  }
}

}  // namespace detail

// The data type (TUTTI_FLOAT32 ...) of a C++ type; 0: it is no element. Integers go by their size. A type that has the
// layout of one of Tutti's is made an element by a specialization:
//   template <> inline constexpr uint32_t tutti::dtype_number<__half> = TUTTI_FLOAT16;
template <typename T>
inline constexpr uint32_t dtype_number = detail::arithmetic_number<T>();
template <>
inline constexpr uint32_t dtype_number<float16> = TUTTI_FLOAT16;
template <>
inline constexpr uint32_t dtype_number<bfloat16> = TUTTI_BFLOAT16;
template <>
inline constexpr uint32_t dtype_number<std::byte> = TUTTI_UINT8;
template <>
inline constexpr uint32_t dtype_number<float8_e4m3> = TUTTI_FLOAT8_E4M3;
template <>
inline constexpr uint32_t dtype_number<float8_e5m2> = TUTTI_FLOAT8_E5M2;
template <>
inline constexpr uint32_t dtype_number<std::complex<float>> = TUTTI_COMPLEX64;
template <>
inline constexpr uint32_t dtype_number<std::complex<double>> = TUTTI_COMPLEX128;
template <>
inline constexpr uint32_t dtype_number<float32_int32> = TUTTI_FLOAT32_INT32;
template <>
inline constexpr uint32_t dtype_number<float64_int64> = TUTTI_FLOAT64_INT64;

// dtype_number of a type that must be an element.
template <typename T>
constexpr uint32_t dtype_of() {
  static_assert(dtype_number<T> != 0, "no such tutti type: see tutti::dtype_number");
  return dtype_number<T>;
}

// `size` elements of a device's memory: an address that the host may not read, so it is no range. It owns nothing. The
// communicator is bound to the device (Communicator::on_device), and Options::stream says in which stream the work
// goes.
template <typename T>
class DeviceSpan {
 public:
  DeviceSpan() = default;
  constexpr DeviceSpan(T* data, size_t size) : data_(data), size_(size) {}
  constexpr T* data() const { return data_; }
  constexpr size_t size() const { return size_; }
  constexpr size_t size_bytes() const { return size_ * sizeof(T); }
  // `count` elements from `first` on; both lie within it.
  constexpr DeviceSpan subspan(size_t first, size_t count) const { return {data_ + first, count}; }
  constexpr operator DeviceSpan<const T>() const { return {data_, size_}; }

 private:
  T* data_ = nullptr;
  size_t size_ = 0;
};

namespace detail {

template <typename R>
inline constexpr bool is_device_span = false;
template <typename T>
inline constexpr bool is_device_span<DeviceSpan<T>> = true;

template <typename R>
struct element {};
template <typename R>
requires std::ranges::contiguous_range<R> && std::ranges::sized_range<R>
struct element<R> {
  using type = std::remove_reference_t<std::ranges::range_reference_t<R>>;
};
template <typename R>
requires is_device_span<std::remove_cvref_t<R>>
struct element<R> {
  using type = std::remove_pointer_t<decltype(std::declval<R&>().data())>;
};
// const for a range of const elements.
template <typename R>
using element_t = typename element<R>::type;

}  // namespace detail

// A contiguous sized range of elements: std::vector, std::array, std::span, std::string, tutti::Buffer, an array of C;
// or a DeviceSpan.
template <typename R>
concept Elements = requires {
  typename detail::element_t<R>;
}
&&dtype_number<std::remove_const_t<detail::element_t<R>>> != 0;

namespace detail {

template <Elements R>
std::span<element_t<R>> span_of(R&& range) {
  if constexpr (is_device_span<std::remove_cvref_t<R>>) {
    return {range.data(), range.size()};
  } else {
    return {std::ranges::data(range), static_cast<size_t>(std::ranges::size(range))};
  }
}
template <Elements R>
using value_t = std::remove_const_t<element_t<R>>;

// True for a range that still exists when the call has returned.
template <typename R>
inline constexpr bool outlives_call =
    std::is_lvalue_reference_v<R> || is_device_span<std::remove_cvref_t<R>> || std::ranges::borrowed_range<R>;

// The checks of a call's output.
template <Elements Out>
constexpr void require_output() {
  static_assert(!std::is_const_v<element_t<Out>>, "tutti: out is const: a call writes it");
  static_assert(outlives_call<Out>, "tutti: out is a temporary: the result would be lost");
}
template <Elements In, Elements Out>
constexpr void require_pair() {
  static_assert(std::is_same_v<value_t<In>, value_t<Out>>, "tutti: in and out have different element types");
  require_output<Out>();
}

}  // namespace detail

}  // namespace tutti
