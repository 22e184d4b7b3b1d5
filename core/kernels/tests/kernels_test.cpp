// SPDX-License-Identifier: Apache-2.0
//
// Every kernel of every path of this CPU against a reference that computes in wide types one element at a time:
// binary128 and 128-bit integers, with 16-bit floats rounded by searching the list of all their values.
#include "kernels/kernels.hpp"

#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/kernel_table.hpp"
#include "paths.hpp"

namespace tutti::core {
namespace {

using Wide = __float128;
using Bits = uint64_t;  // an element's bit pattern

uint32_t bytes_of(uint32_t dtype) { return dtype_bytes(dtype); }
bool is_float(uint32_t dtype) { return dtype >= TUTTI_FLOAT16 && dtype <= TUTTI_FLOAT8_E5M2; }
// Those of two parts have a test of their own (kernel_parts_test.cpp).
std::vector<uint32_t> plain_dtypes() {
  std::vector<uint32_t> all = all_dtypes();
  std::erase_if(all, [](uint32_t dtype) { return dtype >= TUTTI_COMPLEX64; });
  return all;
}
bool combines_bits(uint32_t op) { return op >= TUTTI_BAND && op <= TUTTI_LXOR; }
bool is_signed(uint32_t dtype) { return dtype <= TUTTI_INT64; }

// A float format of 8 or 16 bits by its definition. finite: the greatest exponent is that of numbers, too, but for the
// pattern of all ones, which is NaN.
struct Format {
  int exponent_bits, mantissa_bits;
  bool finite = false;
  int bias() const { return (1 << (exponent_bits - 1)) - 1; }
  int most() const { return (1 << exponent_bits) - 1; }
  double value(uint32_t bits) const {
    const int exponent = static_cast<int>(bits >> mantissa_bits) & most();
    const int mantissa = static_cast<int>(bits & ((1u << mantissa_bits) - 1));
    const double sign = bits & sign_bit() ? -1 : 1;
    if (finite && (bits & (sign_bit() - 1)) == infinity()) return std::nan("");
    if (exponent == most() && !finite) return mantissa ? std::nan("") : sign * std::numeric_limits<double>::infinity();
    if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias() - mantissa_bits);
    return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias() - mantissa_bits);
  }
  uint32_t sign_bit() const { return 1u << (exponent_bits + mantissa_bits); }
  // The first pattern beyond the numbers. Where it is NaN, it stands for all that is too large.
  uint32_t infinity() const { return finite ? sign_bit() - 1 : static_cast<uint32_t>(most()) << mantissa_bits; }
  uint32_t nan() const { return finite ? infinity() : infinity() | (1u << (mantissa_bits - 1)); }
  // The nearest value, of two equally near the even one. Beyond the largest, the next step of the grid stands for
  // infinity.
  uint32_t round(double v) const {
    if (std::isnan(v)) return nan();
    const uint32_t sign = std::signbit(v) ? sign_bit() : 0;
    const double a = std::fabs(v);
    uint32_t low = 0, high = infinity();
    while (high - low > 1) {
      const uint32_t middle = (low + high) / 2;
      (value(middle) <= a ? low : high) = middle;
    }
    const double step = value(infinity() - 1) - value(infinity() - 2);
    const double above = high == infinity() ? value(low) + step : value(high);
    const double down = a - value(low), up = above - a;
    const uint32_t nearest = std::isinf(a) || up < down || (up == down && low % 2 == 1) ? high : low;
    return finite && nearest == infinity() ? nan() : sign | nearest;
  }
};
const Format half{5, 10}, brain{8, 7}, e4m3{4, 3, true}, e5m2{5, 2};
const Format& format_of(uint32_t dtype) {
  return dtype == TUTTI_FLOAT16 ? half : dtype == TUTTI_BFLOAT16 ? brain : dtype == TUTTI_FLOAT8_E4M3 ? e4m3 : e5m2;
}

template <typename T>
Bits to_bits(T v) {
  Bits bits = 0;
  std::memcpy(&bits, &v, sizeof v);
  return bits;
}
template <typename T>
T from_bits(Bits bits) {
  T v;
  std::memcpy(&v, &bits, sizeof v);
  return v;
}

template <typename T>
T fold_float(uint32_t op, T a, T b) {
  if (std::isnan(a) || std::isnan(b)) return std::numeric_limits<T>::quiet_NaN();
  if (op == TUTTI_SUM || op == TUTTI_AVG) return static_cast<T>(static_cast<Wide>(a) + static_cast<Wide>(b));
  if (op == TUTTI_PROD) return static_cast<T>(static_cast<Wide>(a) * static_cast<Wide>(b));
  if (a == b) return std::signbit(a) == (op == TUTTI_MIN) ? a : b;
  return (a < b) == (op == TUTTI_MIN) ? a : b;
}
template <typename T>
T reference_float(uint32_t op, const std::vector<T>& v, uint64_t divisor) {
  T sum = v[0];
  for (size_t i = 1; i < v.size(); ++i) sum = fold_float(op, sum, v[i]);
  if (divisor) sum = static_cast<T>(static_cast<Wide>(sum) / static_cast<Wide>(static_cast<T>(divisor)));
  return std::isnan(sum) ? std::numeric_limits<T>::quiet_NaN() : sum;
}

Bits reference_bits(uint32_t dtype, uint32_t op, const std::vector<Bits>& in) {
  const bool truth = dtype == TUTTI_BOOL || op >= TUTTI_LAND;
  Bits result = in[0];
  for (size_t i = 1; i < in.size(); ++i) {
    const Bits a = truth ? result != 0 : result, b = truth ? in[i] != 0 : in[i];
    result = op == TUTTI_BAND || op == TUTTI_LAND ? a & b : op == TUTTI_BOR || op == TUTTI_LOR ? a | b : a ^ b;
  }
  return result;
}

Bits reference(uint32_t dtype, uint32_t op, const std::vector<Bits>& in, uint64_t divisor) {
  if (in.size() == 1 && !divisor) return in[0];
  if (combines_bits(op)) return reference_bits(dtype, op, in);
  if (dtype == TUTTI_FLOAT64) {
    std::vector<double> v;
    for (Bits b : in) v.push_back(from_bits<double>(b));
    return to_bits(reference_float(op, v, divisor));
  }
  if (is_float(dtype)) {
    const Format& format = format_of(dtype);
    std::vector<float> v;
    for (Bits b : in)
      v.push_back(dtype == TUTTI_FLOAT32 ? from_bits<float>(b)
                                         : static_cast<float>(format.value(static_cast<uint32_t>(b))));
    const float result = reference_float(op, v, divisor);
    return dtype == TUTTI_FLOAT32 ? to_bits(result) : format.round(result);
  }
  const int width = static_cast<int>(bytes_of(dtype)) * 8;
  const auto wrap = [&](unsigned __int128 v) -> __int128 {  // the value of the low bits
    v &= (static_cast<unsigned __int128>(1) << width) - 1;
    if (is_signed(dtype) && v >> (width - 1)) v -= static_cast<unsigned __int128>(1) << width;
    return static_cast<__int128>(v);
  };
  __int128 sum = wrap(in[0]);
  for (size_t i = 1; i < in.size(); ++i) {
    const __int128 b = wrap(in[i]);
    if (op == TUTTI_MIN)
      sum = b < sum ? b : sum;
    else if (op == TUTTI_MAX)
      sum = b > sum ? b : sum;
    else if (op == TUTTI_PROD)
      sum = wrap(static_cast<unsigned __int128>(sum) * static_cast<unsigned __int128>(b));
    else
      sum = wrap(static_cast<unsigned __int128>(sum + b));
  }
  if (divisor) sum /= static_cast<__int128>(divisor);
  return static_cast<Bits>(static_cast<unsigned __int128>(sum)) & (width == 64 ? ~Bits{0} : (Bits{1} << width) - 1);
}

// Random values of all magnitudes, small ones that meet in rounding, and every special one.
Bits draw(uint32_t dtype, std::mt19937_64& random) {
  const uint32_t bytes = bytes_of(dtype);
  const Bits mask = bytes == 8 ? ~Bits{0} : (Bits{1} << (8 * bytes)) - 1;
  const Bits sign = Bits{1} << (8 * bytes - 1);
  const uint64_t kind = random() % 8;
  if (kind < 2) return random() & mask;
  if (!is_float(dtype)) {
    const Bits specials[] = {0, 1, mask, sign, sign - 1, sign + 1, 2, 3};
    return kind == 2 ? specials[random() % 8] : random() % 100 & mask;
  }
  const auto encode = [&](double v) -> Bits {
    switch (dtype) {
      case TUTTI_FLOAT32:
        return to_bits(static_cast<float>(v));
      case TUTTI_FLOAT64:
        return to_bits(v);
      default:
        return format_of(dtype).round(v);
    }
  };
  if (kind == 2) {
    const double infinity = std::numeric_limits<double>::infinity();
    const double specials[] = {0.0, -0.0, infinity, -infinity, std::nan(""), 1.0, 65504.0, 0x1p-24};
    return encode(specials[random() % 8]);
  }
  if (kind == 3) return (random() % 5 | (random() % 2 ? sign : 0)) & mask;  // denormals and zeros
  return encode((static_cast<double>(random() % 20001) - 10000) / (kind == 4 ? 64 : 1));
}

const uint64_t counts[] = {0, 1, 2, 31, 32, 33, 63, 64, 65, 1000, 4097};
const uint64_t most = 4097;

// How a case lies in memory: byte offsets from a 64-byte boundary, which source is a destination, streaming.
struct Layout {
  uint32_t ndsts;
  int alias0, alias1;  // the source at destination 0 and 1's address, or -1; nsrcs - 1 where larger
  bool streaming0, streaming1;
  uint32_t element_shift;  // of the k-th buffer: k * element_shift elements
  uint32_t byte_shift;     // of the k-th buffer: k * byte_shift bytes
};
const Layout layouts[] = {
    {1, -1, -1, false, false, 0, 0}, {1, -1, -1, true, false, 0, 0},  {1, -1, -1, false, false, 1, 0},
    {1, -1, -1, true, false, 3, 0},  {1, -1, -1, false, false, 0, 1}, {1, -1, -1, true, false, 0, 5},
    {1, 0, -1, false, false, 0, 0},  {1, 9, -1, true, false, 1, 0},   {1, 0, -1, false, false, 0, 3},
    {2, -1, -1, false, false, 0, 0}, {2, -1, -1, true, true, 0, 0},   {2, -1, -1, true, false, 1, 0},
    {2, -1, -1, false, true, 2, 0},  {2, -1, -1, true, true, 0, 1},   {2, 0, -1, false, true, 0, 0},
    {2, 9, -1, true, true, 5, 0},    {2, -1, 0, false, false, 7, 0},  {2, -1, 9, true, false, 0, 0},
};

struct Arena {
  static constexpr size_t guard = 128;
  std::vector<unsigned char> bytes;
  unsigned char* start = nullptr;  // guard bytes before and after
  size_t size = 0;
  void prepare(uint64_t payload, uint64_t shift) {
    size = payload;
    bytes.assign(payload + 3 * guard + shift + 64, 0xa5);
    start = bytes.data();
    start += (64 - reinterpret_cast<uintptr_t>(start) % 64) % 64 + guard + shift;
  }
  void fill(const std::vector<Bits>& values, uint32_t element) {
    for (uint64_t i = 0; i < size / element; ++i) std::memcpy(start + i * element, &values[i], element);
  }
  bool guarded() const {
    for (size_t i = 1; i <= guard; ++i)
      if (start[-static_cast<ptrdiff_t>(i)] != 0xa5 || start[size + i - 1] != 0xa5) return false;
    return true;
  }
};

// Runs one case on one path; the text says what is wrong.
std::string check(const KernelTable& table, uint32_t dtype, uint32_t op, const std::vector<std::vector<Bits>>& values,
                  uint32_t nsrcs, uint64_t count, uint64_t divisor, const Layout& layout,
                  const std::vector<Bits>& expected) {
  static Arena srcs[7], dsts[2];
  const uint32_t element = bytes_of(dtype);
  const void* addresses[7];
  uint32_t buffer = 1;
  const auto shift = [&] { return (buffer * layout.element_shift * element + buffer * layout.byte_shift) % 64; };
  for (uint32_t k = 0; k < nsrcs; ++k, ++buffer) {
    srcs[k].prepare(count * element, shift());
    srcs[k].fill(values[k], element);
    addresses[k] = srcs[k].start;
  }
  Arena* to[2];
  Reduction r{};
  for (uint32_t k = 0; k < layout.ndsts; ++k, ++buffer) {
    const int alias = k == 0 ? layout.alias0 : layout.alias1;
    to[k] = alias < 0 ? &dsts[k] : &srcs[std::min<uint32_t>(static_cast<uint32_t>(alias), nsrcs - 1)];
    if (alias < 0) dsts[k].prepare(count * element, shift());
    r.dsts[k] = to[k]->start;
  }
  r.ndsts = layout.ndsts;
  r.srcs = addresses;
  r.nsrcs = nsrcs;
  r.count = count;
  r.divisor = divisor;
  r.streaming[0] = layout.streaming0;
  r.streaming[1] = layout.streaming1;
  table.reduce[dtype][op == TUTTI_AVG ? uint32_t{TUTTI_SUM} : op](r);
  for (uint32_t k = 0; k < layout.ndsts; ++k) {
    if (!to[k]->guarded()) return "bytes around destination " + std::to_string(k) + " were written";
    for (uint64_t i = 0; i < count; ++i) {
      Bits got = 0;
      std::memcpy(&got, to[k]->start + i * element, element);
      if (got == expected[i]) continue;
      char text[200];
      std::snprintf(text, sizeof text, "destination %u, element %lu: expected bits %lx, got %lx", k, i, expected[i],
                    got);
      return text;
    }
  }
  for (uint32_t k = 0; k < nsrcs; ++k) {
    if (!srcs[k].guarded()) return "bytes around source " + std::to_string(k) + " were written";
    if (&srcs[k] == to[0] || (layout.ndsts == 2 && &srcs[k] == to[1])) continue;
    for (uint64_t i = 0; i < count; ++i)
      if (std::memcmp(srcs[k].start + i * element, &values[k][i], element) != 0)
        return "source " + std::to_string(k) + " was changed";
  }
  return "";
}

class Kernels : public testing::TestWithParam<uint32_t> {};

TEST_P(Kernels, GiveTheReferencesBitsForAllOperatorsSizesAndLayouts) {
  const uint32_t dtype = GetParam();
  std::mt19937_64 random(dtype);
  std::vector<std::vector<Bits>> values(7, std::vector<Bits>(most));
  for (auto& source : values)
    for (Bits& v : source) v = draw(dtype, random);
  std::vector<Bits> expected(most), in;
  for (const uint32_t op : all_ops())
    for (const uint32_t nsrcs : {1u, 2u, 3u, 7u})
      for (const uint64_t divisor : {uint64_t{0}, uint64_t{nsrcs}, uint64_t{300}}) {
        if (!op_is_defined(op, dtype) || (divisor && combines_bits(op))) continue;
        if (divisor == 300 && !(op == TUTTI_AVG && nsrcs == 3)) continue;  // more than an int8's range, once
        for (uint64_t i = 0; i < most; ++i) {
          in.clear();
          for (uint32_t k = 0; k < nsrcs; ++k) in.push_back(values[k][i]);
          expected[i] = reference(dtype, op, in, divisor);
        }
        for (const Path& path : paths())
          for (const uint64_t count : counts)
            for (const Layout& layout : layouts) {
              const std::string wrong = check(*path.table, dtype, op, values, nsrcs, count, divisor, layout, expected);
              ASSERT_EQ(wrong, "") << path.name << ": operator " << op << ", " << nsrcs << " sources, count " << count
                                   << ", divisor " << divisor << ", layout " << &layout - layouts;
            }
      }
}
INSTANTIATE_TEST_SUITE_P(AllTypes, Kernels, testing::ValuesIn(plain_dtypes()),
                         [](const auto& type) { return dtype_name(type.param); });

// dst = fold of sources given as bit patterns, on each path.
void expect_bits(uint32_t dtype, uint32_t op, const std::vector<Bits>& in, uint64_t divisor, Bits expected) {
  // 70 elements: whole vectors and edges of every path.
  std::vector<std::vector<Bits>> values;
  for (Bits b : in) values.emplace_back(70, b);
  EXPECT_EQ(reference(dtype, op, in, divisor), expected) << "the reference is wrong";
  for (const Path& path : paths())
    EXPECT_EQ(check(*path.table, dtype, op, values, static_cast<uint32_t>(in.size()), 70, divisor, layouts[0],
                    std::vector<Bits>(70, expected)),
              "")
        << path.name << ", type " << dtype << ", operator " << op;
}

TEST(KernelsSpecial, ZerosInfinitiesAndNaNs) {
  const auto f = [](float v) { return to_bits(v); };
  const float infinity = std::numeric_limits<float>::infinity();
  const Bits nan = 0x7fc00000;
  expect_bits(TUTTI_FLOAT32, TUTTI_MIN, {f(0.0f), f(-0.0f)}, 0, f(-0.0f));
  expect_bits(TUTTI_FLOAT32, TUTTI_MIN, {f(-0.0f), f(0.0f)}, 0, f(-0.0f));
  expect_bits(TUTTI_FLOAT32, TUTTI_MAX, {f(-0.0f), f(0.0f)}, 0, f(0.0f));
  expect_bits(TUTTI_FLOAT32, TUTTI_MAX, {f(0.0f), f(-0.0f)}, 0, f(0.0f));
  for (const uint32_t op : {TUTTI_SUM, TUTTI_PROD, TUTTI_MIN, TUTTI_MAX}) {
    expect_bits(TUTTI_FLOAT32, op, {f(1), 0xffc00123}, 0, nan);
    expect_bits(TUTTI_FLOAT32, op, {0x7f800001, f(1)}, 0, nan);  // signalling
    expect_bits(TUTTI_FLOAT32, op, {f(1), 0x7fc00777, f(2)}, 0, nan);
    expect_bits(TUTTI_FLOAT16, op, {0x3c00, 0xfe12}, 0, 0x7e00);
    expect_bits(TUTTI_BFLOAT16, op, {0xff81, 0x3f80}, 0, 0x7fc0);
    expect_bits(TUTTI_FLOAT64, op, {to_bits(1.0), 0xfff0000000000001}, 0, 0x7ff8000000000000);
  }
  expect_bits(TUTTI_FLOAT32, TUTTI_SUM, {f(infinity), f(-infinity)}, 0, nan);
  expect_bits(TUTTI_FLOAT32, TUTTI_PROD, {f(infinity), f(0)}, 0, nan);
  expect_bits(TUTTI_FLOAT32, TUTTI_SUM, {0xffc00001}, 0, 0xffc00001);  // a copy keeps bits
  expect_bits(TUTTI_FLOAT32, TUTTI_SUM, {1, 2}, 0, 3);                 // denormals
}

TEST(KernelsSpecial, HalvesRoundOnceToNearestEven) {
  expect_bits(TUTTI_FLOAT16, TUTTI_SUM, {0x7bff, 0x4c00}, 0, 0x7c00);           // 65504 + 16: a tie, to infinity
  expect_bits(TUTTI_FLOAT16, TUTTI_SUM, {0x7bff, 0x4bff}, 0, 0x7bff);           // just below
  expect_bits(TUTTI_FLOAT16, TUTTI_SUM, {0x6800, 0x3c00}, 0, 0x6800);           // 2048 + 1: to even
  expect_bits(TUTTI_FLOAT16, TUTTI_SUM, {0x6801, 0x3c00}, 0, 0x6802);           // 2050 + 1: to even
  expect_bits(TUTTI_FLOAT16, TUTTI_SUM, {0x6800, 0x3c00, 0x3c00}, 0, 0x6801);   // one rounding: 2050, not 2048
  expect_bits(TUTTI_BFLOAT16, TUTTI_SUM, {0x4380, 0x3f80, 0x3f80}, 0, 0x4381);  // 256 + 1 + 1 = 258
  expect_bits(TUTTI_FLOAT16, TUTTI_PROD, {0x0001, 0x3800}, 0, 0x0000);          // half the smallest: to even
  expect_bits(TUTTI_FLOAT16, TUTTI_PROD, {0x0003, 0x3800}, 0, 0x0002);
}

TEST(KernelsSpecial, IntegersWrapAndDivideTowardZero) {
  expect_bits(TUTTI_INT32, TUTTI_SUM, {0x7fffffff, 1}, 0, 0x80000000);
  expect_bits(TUTTI_INT32, TUTTI_AVG, {0x80000000}, 1, 0x80000000);
  expect_bits(TUTTI_INT64, TUTTI_AVG, {Bits{1} << 63}, 1, Bits{1} << 63);
  expect_bits(TUTTI_INT64, TUTTI_AVG, {Bits{1} << 63}, ~Bits{0}, 0);
  expect_bits(TUTTI_INT8, TUTTI_AVG, {0x80}, 1, 0x80);
  expect_bits(TUTTI_INT8, TUTTI_AVG, {0xf9}, 2, 0xfd);      // -7 / 2 = -3
  expect_bits(TUTTI_INT8, TUTTI_AVG, {100, 100}, 2, 0xe4);  // wraps to -56 first
  expect_bits(TUTTI_UINT8, TUTTI_AVG, {200, 100}, 300, 0);
  expect_bits(TUTTI_UINT64, TUTTI_AVG, {~Bits{0}}, 3, ~Bits{0} / 3);
  expect_bits(TUTTI_UINT32, TUTTI_AVG, {0xffffffff}, 0xffffffff, 1);
  expect_bits(TUTTI_UINT32, TUTTI_AVG, {0xfffffffe}, 0xffffffff, 0);
  expect_bits(TUTTI_UINT32, TUTTI_AVG, {0xffffffff}, uint64_t{1} << 40, 0);
}

TEST(KernelsSpecial, TruthIsEveryBitPatternButZero) {
  expect_bits(TUTTI_BOOL, TUTTI_LAND, {2, 4}, 0, 1);
  expect_bits(TUTTI_BOOL, TUTTI_BAND, {2, 4}, 0, 1);  // as truth values, not as the bits 010 and 100
  expect_bits(TUTTI_BOOL, TUTTI_BXOR, {0xff, 1}, 0, 0);
  expect_bits(TUTTI_BOOL, TUTTI_BOR, {0, 0x80}, 0, 1);
  expect_bits(TUTTI_BOOL, TUTTI_LXOR, {3, 3, 3}, 0, 1);
  expect_bits(TUTTI_UINT8, TUTTI_BAND, {2, 4}, 0, 0);
  expect_bits(TUTTI_INT64, TUTTI_LAND, {Bits{1} << 63, Bits{1} << 32}, 0, 1);
  expect_bits(TUTTI_INT16, TUTTI_LOR, {0, 0}, 0, 0);
  expect_bits(TUTTI_INT32, TUTTI_BXOR, {0x80000000, 0xffffffff}, 0, 0x7fffffff);
  expect_bits(TUTTI_BOOL, TUTTI_LAND, {7}, 0, 7);  // a copy keeps bits
}

// One source with divisor 1 is a conversion to the accumulator and back: every value must come back, NaNs as the one
// NaN.
TEST(KernelsConversion, AllSixteenBitFloatsComeBack) {
  for (const uint32_t dtype : {TUTTI_FLOAT16, TUTTI_BFLOAT16}) {
    const Format& format = dtype == TUTTI_FLOAT16 ? half : brain;
    std::vector<uint16_t> in(65536), out(65536);
    for (uint32_t i = 0; i < 65536; ++i) in[i] = static_cast<uint16_t>(i);
    for (const Path& path : paths())
      for (const uint64_t step : {uint64_t{65536}, uint64_t{1}}) {  // as whole vectors, and as edges
        for (uint64_t at = 0; at < 65536; at += step) {
          const void* src = &in[at];
          path.table->reduce[dtype][TUTTI_SUM]({{&out[at], nullptr}, 1, &src, 1, step, 1, {false, false}});
        }
        for (uint32_t i = 0; i < 65536; ++i)
          ASSERT_EQ(out[i], std::isnan(format.value(i)) ? format.nan() : i) << path.name << ", type " << dtype;
      }
  }
}

// Every half plus small fractions of neighbouring magnitude: sums fall on, just beside and between all ties.
TEST(KernelsConversion, FloatsRoundToNearestEvenEverywhere) {
  for (const uint32_t dtype : {TUTTI_FLOAT16, TUTTI_BFLOAT16}) {
    const Format& format = dtype == TUTTI_FLOAT16 ? half : brain;
    const uint32_t unit = 1u << format.mantissa_bits;
    std::vector<uint16_t> a(65536), b(65536), out(65536);
    std::vector<float> sums(65536);
    // b is 2^-(mantissa_bits + 1) times a's power of two (half a unit), exactly, a bit more, a bit less, and half of
    // it.
    for (const uint32_t variant : {0u, 1u, 2u, 3u}) {
      for (uint32_t i = 0; i < 65536; ++i) {
        const uint32_t magnitude = i & 0x7fff, exponent = magnitude / unit;
        const uint32_t down = static_cast<uint32_t>(format.mantissa_bits) + 1 + (variant == 3);
        uint32_t small = exponent > down ? (exponent - down) * unit : magnitude % 7;
        if (variant == 1) small += 1;
        if (variant == 2 && small > 0) small -= 1;
        a[i] = static_cast<uint16_t>(i);
        b[i] = static_cast<uint16_t>(small | (i & 0x8000));
        sums[i] = static_cast<float>(format.value(a[i])) + static_cast<float>(format.value(b[i]));
      }
      const void* srcs[] = {a.data(), b.data()};
      for (const Path& path : paths())
        for (const uint64_t step : {uint64_t{65536}, uint64_t{1}}) {
          for (uint64_t at = 0; at < 65536; at += step) {
            const void* here[] = {&a[at], &b[at]};
            path.table->reduce[dtype][TUTTI_SUM](
                {{&out[at], nullptr}, 1, step == 1 ? here : srcs, 2, step, 0, {false, false}});
          }
          for (uint32_t i = 0; i < 65536; ++i)
            ASSERT_EQ(out[i], format.round(sums[i]))
                << path.name << ", type " << dtype << ", " << i << " variant " << variant;
        }
    }
  }
}

// All pairs of all float8 values, each operator; and every value over every small divisor.
TEST(KernelsConversion, EightBitFloatsExhaustively) {
  for (const uint32_t dtype : {TUTTI_FLOAT8_E4M3, TUTTI_FLOAT8_E5M2}) {
    const Format& format = format_of(dtype);
    std::vector<uint8_t> a(65536), b(65536), out(65536);
    for (uint32_t i = 0; i < 65536; ++i) a[i] = static_cast<uint8_t>(i), b[i] = static_cast<uint8_t>(i >> 8);
    const void* srcs[] = {a.data(), b.data()};
    for (const Path& path : paths())
      for (const uint32_t op : {TUTTI_SUM, TUTTI_PROD, TUTTI_MIN, TUTTI_MAX}) {
        path.table->reduce[dtype][op]({{out.data(), nullptr}, 1, srcs, 2, 65536, 0, {false, false}});
        for (uint32_t i = 0; i < 65536; ++i)
          ASSERT_EQ(out[i], reference(dtype, op, {a[i], b[i]}, 0))
              << path.name << ", type " << dtype << ", operator " << op << " of " << int{a[i]} << " and " << int{b[i]};
      }
    for (const Path& path : paths())
      for (uint64_t divisor = 1; divisor <= 300; ++divisor) {
        path.table->reduce[dtype][TUTTI_SUM]({{out.data(), nullptr}, 1, srcs, 1, 256, divisor, {false, false}});
        for (uint32_t i = 0; i < 256; ++i)
          ASSERT_EQ(out[i], format.round(static_cast<float>(format.value(i)) / static_cast<float>(divisor)))
              << path.name << ", type " << dtype << ", " << i << " / " << divisor;
      }
  }
}

TEST(KernelsSpecial, EightBitFloatsOverflowToInfinityOrNaN) {
  expect_bits(TUTTI_FLOAT8_E4M3, TUTTI_SUM, {0x7e, 0x50}, 0, 0x7e);        // 448 + 8
  expect_bits(TUTTI_FLOAT8_E4M3, TUTTI_SUM, {0x7e, 0x58}, 0, 0x7e);        // 448 + 16: a tie, to even
  expect_bits(TUTTI_FLOAT8_E4M3, TUTTI_SUM, {0x7e, 0x59}, 0, 0x7f);        // 448 + 18: NaN
  expect_bits(TUTTI_FLOAT8_E4M3, TUTTI_SUM, {0xfe, 0xfe}, 0, 0x7f);        // -896: the NaN has no sign
  expect_bits(TUTTI_FLOAT8_E4M3, TUTTI_SUM, {0x7e, 0x7e, 0xfe}, 0, 0x7e);  // one rounding: 896 - 448
  expect_bits(TUTTI_FLOAT8_E4M3, TUTTI_MAX, {0x7e, 0xff}, 0, 0x7f);
  expect_bits(TUTTI_FLOAT8_E4M3, TUTTI_SUM, {0x01, 0x01}, 0, 0x02);  // denormals
  expect_bits(TUTTI_FLOAT8_E5M2, TUTTI_SUM, {0x7b, 0x7b}, 0, 0x7c);
  expect_bits(TUTTI_FLOAT8_E5M2, TUTTI_SUM, {0xfb, 0xfb}, 0, 0xfc);
  expect_bits(TUTTI_FLOAT8_E5M2, TUTTI_SUM, {0x7c, 0xfc}, 0, 0x7e);  // infinity - infinity
  expect_bits(TUTTI_FLOAT8_E5M2, TUTTI_MIN, {0x00, 0x80}, 0, 0x80);
  expect_bits(TUTTI_FLOAT8_E5M2, TUTTI_PROD, {0x01, 0x38}, 0, 0x00);  // half the smallest: to even
}

TEST(KernelsLookup, UnknownTypesAndOperatorsHaveNone) {
  EXPECT_EQ(find_reduction(0, TUTTI_SUM), nullptr);
  EXPECT_EQ(find_reduction(TUTTI_FLOAT64_INT64 + 1, TUTTI_SUM), nullptr);
  EXPECT_EQ(find_reduction(TUTTI_FLOAT32, 0), nullptr);
  EXPECT_EQ(find_reduction(TUTTI_INT32, TUTTI_MAXLOC + 1), nullptr);
  for (uint32_t dtype = 0; dtype <= TUTTI_FLOAT64_INT64 + 1; ++dtype)
    for (uint32_t op = 0; op <= TUTTI_MAXLOC + 1; ++op)
      EXPECT_EQ(find_reduction(dtype, op) != nullptr, op_is_defined(op, dtype)) << dtype << " " << op;
  EXPECT_EQ(find_reduction(TUTTI_FLOAT32, TUTTI_AVG), find_reduction(TUTTI_FLOAT32, TUTTI_SUM));
}

TEST(Copy, GivesTheSameBytesForAllSizesOffsetsAndStores) {
  std::mt19937_64 random(1);
  std::vector<std::vector<Bits>> values(1, std::vector<Bits>(40000));
  for (Bits& v : values[0]) v = random() & 0xff;
  for (const uint64_t bytes : {0, 1, 63, 64, 65, 129, 4096, 16383, 16384, 16385, 40000})
    for (const uint64_t to : {0, 1, 8, 63})
      for (const uint64_t from : {0, 3, 32})
        for (const int streams : {0, 1, 2, 3}) {
          Arena src, one, two;
          for (Arena* arena : {&src, &one, &two})
            arena->prepare(bytes, arena == &src ? from : arena == &one ? to : to / 2);
          src.fill(values[0], 1);
          copy(one.start, src.start, bytes, streams & 1);
          ASSERT_TRUE(one.guarded() && std::memcmp(one.start, src.start, bytes) == 0)
              << bytes << " " << to << " " << from;
          std::memset(one.start, 0x11, bytes);
          copy(one.start, streams & 1, two.start, streams & 2, src.start, bytes);
          ASSERT_TRUE(one.guarded() && std::memcmp(one.start, src.start, bytes) == 0)
              << bytes << " " << to << " " << from;
          ASSERT_TRUE(two.guarded() && std::memcmp(two.start, src.start, bytes) == 0)
              << bytes << " " << to << " " << from;
          copy(src.start, streams & 1, two.start, streams & 2, src.start, bytes);  // in place
          ASSERT_TRUE(src.guarded() && std::memcmp(two.start, src.start, bytes) == 0);
        }
}

}  // namespace
}  // namespace tutti::core
