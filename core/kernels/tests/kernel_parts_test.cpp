// SPDX-License-Identifier: Apache-2.0
//
// Kernels of elements of two parts, on every path of this CPU, against references that round each operation from
// binary128.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <type_traits>
#include <vector>

#include "kernels/kernel_table.hpp"

namespace tutti::core {
namespace {

using Wide = __float128;

std::vector<const KernelTable*> paths() {
  std::vector<const KernelTable*> found;
  for (const CpuPath path : {CpuPath::baseline, CpuPath::avx2, CpuPath::avx512})
    if (const KernelTable* table = kernel_table(path)) found.push_back(table);
  return found;
}

template <typename T>
T draw(std::mt19937_64& random) {
  const T specials[] = {0,
                        -T{0},
                        1,
                        -1,
                        std::numeric_limits<T>::infinity(),
                        -std::numeric_limits<T>::quiet_NaN(),
                        std::numeric_limits<T>::max(),
                        std::numeric_limits<T>::denorm_min()};
  if (random() % 6 == 0) return specials[random() % 8];
  return static_cast<T>(
      std::ldexp(static_cast<double>(static_cast<int64_t>(random())), static_cast<int>(random() % 60) - 90));
}

template <typename T>
T one_nan(T v) {
  return std::isnan(v) ? std::numeric_limits<T>::quiet_NaN() : v;
}

// Runs a case on all paths: separate, into the first source, into two destinations, at odd addresses.
template <typename Element, typename Reference>
void check(uint32_t dtype, uint32_t op, const std::vector<std::vector<Element>>& values, uint64_t divisor,
           const Reference& reference) {
  const size_t count = values[0].size(), bytes = count * sizeof(Element);
  std::vector<Element> expected(count);
  for (size_t i = 0; i < count; ++i) {
    expected[i] = values[0][i];
    for (size_t k = 1; k < values.size(); ++k) expected[i] = reference.combine(expected[i], values[k][i]);
    if (values.size() > 1 || divisor) expected[i] = reference.finish(expected[i], divisor);
  }
  for (const KernelTable* table : paths())
    for (const size_t shift : {size_t{0}, size_t{3}})
      for (const bool in_place : {false, true}) {
        std::vector<std::vector<char>> memory(values.size() + 2, std::vector<char>(bytes + shift + 1, 'x'));
        std::vector<const void*> srcs;
        for (size_t k = 0; k < values.size(); ++k) {
          if (bytes) std::memcpy(memory[k].data() + shift, values[k].data(), bytes);
          srcs.push_back(memory[k].data() + shift);
        }
        char* const first = memory[in_place ? 0 : values.size()].data() + shift;
        char* const second = memory[values.size() + 1].data() + shift;
        table->reduce[dtype][op](
            {{first, second}, 2, srcs.data(), static_cast<uint32_t>(srcs.size()), count, divisor, {false, true}});
        for (size_t i = 0; i < count; ++i)
          for (const char* out : {first, second})
            ASSERT_EQ(std::memcmp(out + i * sizeof(Element), &expected[i], sizeof(Element)), 0)
                << dtype_name(dtype) << " " << op_name(op) << ", element " << i << " of " << count << ", "
                << values.size() << " sources, divisor " << divisor;
        ASSERT_EQ(first[bytes], 'x');
        ASSERT_EQ(second[bytes], 'x');
      }
}

template <typename T>
struct Complex {
  T real, imaginary;
};

template <typename T>
struct ComplexReference {
  uint32_t op;
  static T times(T a, T b) { return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b)); }
  static T plus(T a, T b) { return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b)); }
  Complex<T> combine(Complex<T> a, Complex<T> b) const {
    if (op == TUTTI_SUM) return {plus(a.real, b.real), plus(a.imaginary, b.imaginary)};
    return {plus(times(a.real, b.real), -times(a.imaginary, b.imaginary)),
            plus(times(a.real, b.imaginary), times(a.imaginary, b.real))};
  }
  Complex<T> finish(Complex<T> v, uint64_t divisor) const {
    if (divisor) v = {v.real / static_cast<T>(divisor), v.imaginary / static_cast<T>(divisor)};
    return {one_nan(v.real), one_nan(v.imaginary)};
  }
};

template <typename T>
void check_complex(uint32_t dtype) {
  std::mt19937_64 random(dtype);
  for (const uint32_t op : {TUTTI_SUM, TUTTI_PROD})
    for (const size_t n : {1u, 2u, 3u, 7u})
      for (const size_t count : {0u, 1u, 5u, 33u, 1000u}) {
        std::vector<std::vector<Complex<T>>> values(n, std::vector<Complex<T>>(count));
        for (auto& source : values)
          for (auto& v : source) v = {draw<T>(random), draw<T>(random)};
        check(dtype, op, values, 0, ComplexReference<T>{op});
        if (op == TUTTI_SUM) check(dtype, op, values, 3, ComplexReference<T>{op});
      }
}

TEST(KernelParts, Complex64) { check_complex<float>(TUTTI_COMPLEX64); }
TEST(KernelParts, Complex128) { check_complex<double>(TUTTI_COMPLEX128); }

TEST(KernelParts, AProductOfComplexNumbers) {
  const Complex<double> a{1, 2}, b{3, -4};
  Complex<double> out{};
  const void* srcs[] = {&a, &b};
  find_reduction(TUTTI_COMPLEX128, TUTTI_PROD)({{&out, nullptr}, 1, srcs, 2, 1, 0, {false, false}});
  EXPECT_EQ(out.real, 11);
  EXPECT_EQ(out.imaginary, 2);
}

// The definition, read out of the bits: NaNs first, then by value with -0 before +0 (from the other end for maxloc),
// then by index.
template <typename T, typename Index>
struct PairReference {
  struct Value {
    T value;
    Index index;
  };
  uint32_t op;
  Index rank_of(T v) const {
    const auto bits = std::bit_cast<Index>(v);
    const Index ordinal = bits < 0 ? std::numeric_limits<Index>::min() - bits - 1 : bits;
    if (std::isnan(v)) return std::numeric_limits<Index>::min();
    return op == TUTTI_MINLOC ? ordinal : -ordinal - 1;
  }
  Value combine(Value a, Value b) const {
    const Index x = rank_of(a.value), y = rank_of(b.value);
    if (x != y) return x < y ? a : b;
    return a.index < b.index ? a : b;
  }
  Value finish(Value v, uint64_t) const { return {one_nan(v.value), v.index}; }
};

template <typename T, typename Index>
void check_pairs(uint32_t dtype) {
  using Value = typename PairReference<T, Index>::Value;
  std::mt19937_64 random(dtype);
  constexpr Index far = std::numeric_limits<Index>::max();
  for (const uint32_t op : {TUTTI_MINLOC, TUTTI_MAXLOC})
    for (const size_t n : {1u, 2u, 3u, 7u})
      for (const size_t count : {0u, 1u, 5u, 33u, 1000u}) {
        std::vector<std::vector<Value>> values(n, std::vector<Value>(count));
        for (auto& source : values)
          for (size_t i = 0; i < count; ++i) {
            const T shared[] = {0, -T{0}, static_cast<T>(i), std::numeric_limits<T>::quiet_NaN()};
            const Index edges[] = {far, -far - 1, -1, 0};
            // Half of the values are equal to others, and some indices.
            source[i] = {random() % 2 ? shared[random() % (i % 5 ? 3 : 4)] : draw<T>(random),
                         random() % 4 ? static_cast<Index>(random()) : edges[random() % 4]};
          }
        check(dtype, op, values, 0, PairReference<T, Index>{op});
      }
}

TEST(KernelParts, Float32AndInt32) { check_pairs<float, int32_t>(TUTTI_FLOAT32_INT32); }
TEST(KernelParts, Float64AndInt64) { check_pairs<double, int64_t>(TUTTI_FLOAT64_INT64); }

TEST(KernelParts, ValuesAndTheirPlaces) {
  using Pair = PairReference<float, int32_t>::Value;
  constexpr float nan = std::numeric_limits<float>::quiet_NaN(), infinity = std::numeric_limits<float>::infinity();
  struct Case {
    Pair a, b, least, greatest;
  };
  const Case cases[] = {{{1, 9}, {2, 3}, {1, 9}, {2, 3}},
                        {{5, 9}, {5, 3}, {5, 3}, {5, 3}},                // equal: the lowest index
                        {{5, -1}, {5, 0}, {5, -1}, {5, -1}},             // indices have signs
                        {{0, 1}, {-0.0f, 2}, {-0.0f, 2}, {0, 1}},        // -0 is less than +0
                        {{-infinity, 7}, {nan, 8}, {nan, 8}, {nan, 8}},  // NaN is both least and greatest
                        {{-nan, 8}, {nan, 7}, {nan, 7}, {nan, 7}}};
  for (const Case& c : cases)
    for (const bool swapped : {false, true})
      for (const auto& [op, expected] : {std::pair{TUTTI_MINLOC, c.least}, {TUTTI_MAXLOC, c.greatest}}) {
        Pair out{};
        const void* srcs[] = {swapped ? &c.b : &c.a, swapped ? &c.a : &c.b};
        find_reduction(TUTTI_FLOAT32_INT32,
                       static_cast<uint32_t>(op))({{&out, nullptr}, 1, srcs, 2, 1, 0, {false, false}});
        EXPECT_EQ(std::memcmp(&out, &expected, sizeof out), 0) << "operator " << op << " of " << c.a.value << " and "
                                                               << c.b.value << ": " << out.value << ", " << out.index;
      }
}

}  // namespace
}  // namespace tutti::core
