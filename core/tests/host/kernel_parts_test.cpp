// SPDX-License-Identifier: Apache-2.0
//
// Kernels of elements of two parts, on every path of this CPU, against references that round each operation from
// binary128.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "host/kernel_table.hpp"

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

}  // namespace
}  // namespace tutti::core
