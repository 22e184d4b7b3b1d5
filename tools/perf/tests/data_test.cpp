// SPDX-License-Identifier: Apache-2.0
#include "data.hpp"

#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <cstring>
#include <random>
#include <set>

#include "blocks.hpp"
#include "collectives.hpp"
#include "element.hpp"
#include "options.hpp"

namespace perf {
namespace {

using tutti::all_dtypes, tutti::all_ops, tutti::op_is_defined;

// The same on bits.
template <typename T>
T step_bits(uint32_t op, T a, T b) {
  using Bits = BitsOf<T>;
  Bits x = std::bit_cast<Bits>(a), y = std::bit_cast<Bits>(b);
  if (std::is_same_v<T, Truth> || op >= TUTTI_LAND) x = x != 0, y = y != 0;
  if (op == TUTTI_BAND || op == TUTTI_LAND) return std::bit_cast<T>(static_cast<Bits>(x & y));
  if (op == TUTTI_BOR || op == TUTTI_LOR) return std::bit_cast<T>(static_cast<Bits>(x | y));
  return std::bit_cast<T>(static_cast<Bits>(x ^ y));
}

// One reducing step as a library does it: rounded to the type.
template <typename T>
T step(uint32_t op, T a, T b) {
  if constexpr (is_single<T>)
    if (op >= TUTTI_BAND) return step_bits(op, a, b);
  if constexpr (is_pair<T>) {
    if (a.value != b.value) return (a.value < b.value) == (op == TUTTI_MINLOC) ? a : b;
    return a.index < b.index ? a : b;
  } else if constexpr (is_complex<T>) {
    using Part = decltype(T::real);
    if (op != TUTTI_PROD) return {step<Part>(op, a.real, b.real), step<Part>(op, a.imaginary, b.imaginary)};
    return {a.real * b.real - a.imaginary * b.imaginary, a.real * b.imaginary + a.imaginary * b.real};
  } else if constexpr (std::is_same_v<T, Truth>) {
    return a;
  } else if constexpr (std::is_integral_v<T>) {
    using U = std::make_unsigned_t<T>;
    const uint64_t x = static_cast<U>(a), y = static_cast<U>(b);
    if (op == TUTTI_PROD) return static_cast<T>(x * y);
    if (op == TUTTI_MIN) return std::min(a, b);
    if (op == TUTTI_MAX) return std::max(a, b);
    return static_cast<T>(x + y);
  } else {
    const double x = FloatTraits<T>::value(a), y = FloatTraits<T>::value(b);
    if (op == TUTTI_PROD) return FloatTraits<T>::from(x * y);
    if (op == TUTTI_MIN) return x < y ? a : b;
    if (op == TUTTI_MAX) return x > y ? a : b;
    return FloatTraits<T>::from(x + y);
  }
}

template <typename T>
T divide(T sum, uint32_t n) {
  if constexpr (is_pair<T>) {
    return sum;
  } else if constexpr (is_complex<T>) {
    return {divide(sum.real, n), divide(sum.imaginary, n)};
  } else if constexpr (std::is_same_v<T, Truth>) {
    return sum;
  } else if constexpr (!std::is_integral_v<T>) {
    return FloatTraits<T>::from(FloatTraits<T>::value(sum) / n);
  } else if constexpr (std::is_signed_v<T>) {
    return static_cast<T>(static_cast<int64_t>(sum) / int64_t{n});
  } else {
    return static_cast<T>(uint64_t{sum} / n);
  }
}

// Reduces in a random tree over a random order of ranks.
template <typename T>
std::vector<T> reduce(const Pattern& pattern, uint64_t count, std::mt19937* random) {
  std::vector<std::vector<T>> parts(pattern.nranks, std::vector<T>(count));
  for (uint32_t rank = 0; rank < pattern.nranks; ++rank) fill_input(pattern, rank, 0, count, parts[rank].data());
  while (parts.size() > 1) {
    const size_t a = (*random)() % parts.size();
    std::swap(parts[a], parts.back());
    const std::vector<T> last = parts.back();
    parts.pop_back();
    std::vector<T>& other = parts[(*random)() % parts.size()];
    for (uint64_t i = 0; i < count; ++i) other[i] = step<T>(pattern.op, other[i], last[i]);
  }
  if (pattern.op == TUTTI_AVG)
    for (T& element : parts[0]) element = divide(element, pattern.nranks);
  return parts[0];
}

TEST(Data, EveryOrderOfReductionGivesTheExpectedBits) {
  std::mt19937 random(7);
  for (const uint32_t dtype : all_dtypes())
    for (const uint32_t op : all_ops())
      for (const uint32_t nranks : {1u, 2u, 3u, 5u, 8u, 13u, 64u, 300u, 2100u})
        with_type(dtype, [&]<typename T>(T) {
          if (!op_is_defined(op, dtype)) return;
          const uint64_t count = nranks > 100 ? 8 : 64;
          for (int round = 0; round < 3; ++round) {
            const Pattern pattern{random(), dtype, op, nranks};
            const std::vector<T> result = reduce<T>(pattern, count, &random);
            Mistakes mistakes;
            check_reduced(pattern, pattern.nranks, 0, count, result.data(), 0, &mistakes);
            EXPECT_EQ(mistakes.count, 0u) << "dtype " << dtype << " op " << op << " ranks " << nranks << ": expected "
                                          << mistakes.expected << ", got " << mistakes.got;
          }
        });
}

// Doubles hold the sums of narrower numbers without rounding.
template <typename T>
void expect_exact_sums(uint32_t dtype) {
  constexpr uint32_t nranks = 5, count = 200;
  const Pattern pattern{3, dtype, TUTTI_SUM, nranks, true};
  std::vector<double> sums(count);
  std::vector<T> one(count), exact(count), folded(count, T{});
  for (uint32_t rank = 0; rank < nranks; ++rank) {
    fill_input(pattern, rank, 0, count, one.data());
    for (uint32_t i = 0; i < count; ++i) {
      sums[i] += FloatTraits<T>::value(one[i]);
      folded[i] = FloatTraits<T>::from(FloatTraits<T>::value(folded[i]) + FloatTraits<T>::value(one[i]));
    }
  }
  for (uint32_t i = 0; i < count; ++i) exact[i] = FloatTraits<T>::from(sums[i]);
  Mistakes mistakes;
  check_reduced(pattern, nranks, 0, count, exact.data(), 0, &mistakes);
  EXPECT_EQ(mistakes.count, 0u) << mistakes.first_index << ": expected " << mistakes.expected << ", got "
                                << mistakes.got;
  check_reduced(pattern, nranks, 0, count, folded.data(), 0, &mistakes);
  EXPECT_GT(mistakes.count, count / 10) << "sums that are rounded at each step are told apart";
}
TEST(Data, ExactSumsAreRoundedOnce) {
  expect_exact_sums<float>(TUTTI_FLOAT32);
  expect_exact_sums<Half>(TUTTI_FLOAT16);
  expect_exact_sums<Bfloat16>(TUTTI_BFLOAT16);
}

// The prefix of a scan: the reduction of a smaller job's ranks, with the inputs of the whole.
TEST(Data, ReducesTheFirstRanks) {
  const Pattern pattern{3, TUTTI_INT64, TUTTI_AVG, 4};
  int64_t first[9], second[9];
  fill_input(pattern, 0, 0, 9, first);
  fill_input(pattern, 1, 0, 9, second);
  Mistakes mistakes;
  check_reduced(pattern, 1, 0, 9, first, 0, &mistakes);
  for (int i = 0; i < 9; ++i)
    second[i] = static_cast<int64_t>(static_cast<uint64_t>(first[i]) + static_cast<uint64_t>(second[i])) / 2;
  check_reduced(pattern, 2, 0, 9, second, 0, &mistakes);
  EXPECT_EQ(mistakes.count, 0u);
  check_reduced(pattern, 3, 0, 9, second, 0, &mistakes);
  EXPECT_GT(mistakes.count, 5u);
}

TEST(Data, AWrongBitIsFoundWhereItIs) {
  for (const uint32_t dtype : all_dtypes())
    for (const uint32_t op : {0u, uint32_t{TUTTI_SUM}, uint32_t{TUTTI_PROD}, uint32_t{TUTTI_MAX}, uint32_t{TUTTI_LOR},
                              uint32_t{TUTTI_MAXLOC}})
      with_type(dtype, [&]<typename T>(T) {
        if (op && !op_is_defined(op, dtype)) return;
        std::mt19937 random(dtype);
        const Pattern pattern{11, dtype, op, 3};
        std::vector<T> data(50);
        if (op == 0)
          fill_input(pattern, 2, 100, data.size(), data.data());
        else
          data = reduce<T>(pattern, 50, &random);
        for (size_t bit = 0; bit < 8 * sizeof(T); ++bit) {
          std::vector<T> damaged = data;
          if (is_complex<T> && bit % (4 * sizeof(T)) == 4 * sizeof(T) - 1) continue;  // may be the sign of a zero
          reinterpret_cast<unsigned char*>(&damaged[17])[bit / 8] ^= static_cast<unsigned char>(1u << bit % 8);
          Mistakes mistakes;
          if (op == 0)
            check_moved(pattern, 2, 100, damaged.size(), damaged.data(), 1000, &mistakes);
          else
            check_reduced(pattern, pattern.nranks, 0, damaged.size(), damaged.data(), 1000, &mistakes);
          EXPECT_EQ(mistakes.count, 1u);
          EXPECT_EQ(mistakes.first_index, 1017u);
          EXPECT_NE(mistakes.expected, mistakes.got);
        }
      });
}

TEST(Data, FloatingAverageMayBeTwoUnitsOffAndNoMore) {
  const Pattern pattern{5, TUTTI_FLOAT32, TUTTI_AVG, 3};
  std::mt19937 random(1);
  const std::vector<float> right = reduce<float>(pattern, 32, &random);
  for (const int units : {-3, -2, 2, 3}) {
    std::vector<float> shifted = right;
    for (float& element : shifted)
      for (int i = 0; i < std::abs(units); ++i) element = std::nextafter(element, units < 0 ? -INFINITY : INFINITY);
    Mistakes mistakes;
    check_reduced(pattern, pattern.nranks, 0, shifted.size(), shifted.data(), 0, &mistakes);
    EXPECT_EQ(mistakes.count, std::abs(units) > 2 ? 32u : 0u) << units;
  }
  std::vector<float> nothing(32, NAN);
  Mistakes mistakes;
  check_reduced(pattern, pattern.nranks, 0, 32, nothing.data(), 0, &mistakes);
  EXPECT_EQ(mistakes.count, 32u);
}

// Swapped ranks, indices and seeds must show. Small types repeat values, but never whole sequences.
TEST(Data, RanksIndicesAndSeedsDiffer) {
  for (const uint32_t dtype : all_dtypes())
    for (const uint32_t op : {0u, uint32_t{TUTTI_SUM}, uint32_t{TUTTI_PROD}, uint32_t{TUTTI_MIN}, uint32_t{TUTTI_BXOR},
                              uint32_t{TUTTI_MINLOC}})
      with_type(dtype, [&]<typename T>(T) {
        if (op && !op_is_defined(op, dtype)) return;
        constexpr uint64_t count = 64;
        const auto input = [&](uint64_t seed, uint32_t rank, uint64_t first) {
          std::string bytes(count * sizeof(T), '\0');
          fill_input({seed, dtype, op, 8}, rank, first, count, bytes.data());
          return bytes;
        };
        std::set<std::string> seen;
        for (uint64_t seed : {1u, 2u})
          for (uint32_t rank = 0; rank < 8; ++rank)
            for (uint64_t first = 0; first < 8; ++first) seen.insert(input(seed, rank, first));
        EXPECT_EQ(seen.size(), 2u * 8 * 8) << "dtype " << dtype << " op " << op;
        std::set<std::string> values;
        const std::string bytes = input(1, 0, 0);
        for (uint64_t i = 0; i < count; ++i) values.insert(bytes.substr(i * sizeof(T), sizeof(T)));
        EXPECT_GE(values.size(), dtype == TUTTI_FLOAT8_E5M2 ? 9u : 10u) << "dtype " << dtype << " op " << op;
      });
}

// The block results of a reduction differ, or swapped chunks would pass.
TEST(Data, ResultsDifferFromIndexToIndex) {
  for (const uint32_t dtype : all_dtypes())
    for (const uint32_t op : all_ops())
      for (const uint32_t nranks : {2u, 8u, 16u})
        with_type(dtype, [&]<typename T>(T) {
          if (!op_is_defined(op, dtype)) return;
          std::mt19937 random(3);
          const std::vector<T> result = reduce<T>({9, dtype, op, nranks}, 64, &random);
          std::set<std::string> values;
          for (const T& element : result) values.emplace(reinterpret_cast<const char*>(&element), sizeof element);
          const bool truth = dtype == TUTTI_BOOL || (op >= TUTTI_LAND && op <= TUTTI_LXOR);
          EXPECT_GE(values.size(), truth ? 2u : 6u) << "dtype " << dtype << " op " << op << " ranks " << nranks;
        });
}

TEST(SmallFloat, AllValuesSurviveTheWayThere) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Half half{static_cast<uint16_t>(bits)};
    if (!std::isnan(half.value())) {
      EXPECT_EQ(Half::from(half.value()).bits, bits);
    }
    const Bfloat16 bfloat{static_cast<uint16_t>(bits)};
    if (!std::isnan(bfloat.value())) {
      EXPECT_EQ(Bfloat16::from(bfloat.value()).bits, bits);
    }
  }
  EXPECT_TRUE(std::isnan(Half::from(NAN).value()));
}

TEST(SmallFloat, EightBitsSurviveAndOverflow) {
  for (uint32_t bits = 0; bits < 0x100; ++bits) {
    const Float8E4M3 a{static_cast<uint8_t>(bits)};
    if (!std::isnan(a.value())) {
      EXPECT_EQ(Float8E4M3::from(a.value()).bits, bits);
    }
    const Float8E5M2 b{static_cast<uint8_t>(bits)};
    if (!std::isnan(b.value())) {
      EXPECT_EQ(Float8E5M2::from(b.value()).bits, bits);
    }
  }
  EXPECT_EQ(Float8E4M3::from(464).value(), 448);
  EXPECT_TRUE(std::isnan(Float8E4M3::from(465).value()));
  EXPECT_TRUE(std::isinf(Float8E5M2::from(61440).value()));
}

TEST(SmallFloat, RoundsToNearestEven) {
  EXPECT_EQ(Half::from(2049).value(), 2048);  // between 2048 and 2050: even mantissa
  EXPECT_EQ(Half::from(2051).value(), 2052);
  EXPECT_EQ(Half::from(2049.001).value(), 2050);
  EXPECT_EQ(Half::from(65519).value(), 65504);
  EXPECT_TRUE(std::isinf(Half::from(65520).value()));
  EXPECT_EQ(Half::from(std::ldexp(1.5, -25)).value(), std::ldexp(1.0, -24));
  EXPECT_EQ(Half::from(std::ldexp(1.0, -25)).value(), 0);
  EXPECT_EQ(Half::from(std::ldexp(1.0, -60)).value(), 0);
  EXPECT_EQ(Bfloat16::from(257).value(), 256);
  EXPECT_EQ(Bfloat16::from(259).value(), 260);
  for (uint32_t bits = 0x3c00; bits < 0x3d00; ++bits) {  // against the hardware's binary32 rounding
    const float value = std::bit_cast<float>(bits << 16 | (0x8000u + (bits & 1)));
    const uint32_t raw = std::bit_cast<uint32_t>(value);
    EXPECT_EQ(Bfloat16::from(value).bits, (raw + 0x7fff + (raw >> 16 & 1)) >> 16);
  }
}

// Skewed blocks fill buffers of n equal ones, and what one rank sends another, that expects.
TEST(Collectives, SkewedBlocksFitTogether) {
  for (const char* name : {"gather_v", "all_gather_v", "scatter_v", "reduce_scatter_v", "all_to_all_v"})
    for (const uint32_t n : {1u, 2u, 5u}) {
      const Collective& collective = *find_collective(name);
      const BlockLayout layout(collective, n, 60, true), equal(collective, n, 60, false);
      for (uint32_t rank = 0; rank < n; ++rank)
        for (const bool input : {false, true}) {
          EXPECT_LE(layout.total(rank, input), std::max(layout.blocks(input), uint64_t{2}) * 60) << name;
          if (layout.blocks(input) == n) {
            EXPECT_EQ(layout.total(rank, input), n * 60u) << name << " of " << n;
          }
          EXPECT_EQ(equal.counts(rank, input), std::vector<uint64_t>(equal.blocks(input), 60));
        }
      for (uint32_t a = 0; a < n; ++a)
        for (uint32_t b = 0; b < n; ++b) {
          const bool gathers = layout.blocks(true) == 1, scatters = layout.blocks(false) == 1;
          EXPECT_EQ(layout.elements(a, true, gathers ? 0 : b), layout.elements(b, false, scatters ? 0 : a)) << name;
        }
    }
  const Collective& reduce = *find_collective("all_reduce");
  EXPECT_EQ(BlockLayout(reduce, 4, 60, true).elements(3, true, 0), 60u);
}

TEST(Collectives, SizesAreTotalsRoundedDown) {
  const Collective& gather = *find_collective("all_gather");
  EXPECT_EQ(gather.count_for(1 << 20, 4, 8), 32768u);
  EXPECT_EQ(gather.count_for(100, 4, 3), 8u);
  EXPECT_EQ(gather.total_bytes(8, 4, 3), 96u);
  EXPECT_EQ(find_collective("all_reduce")->count_for(7, 4, 3), 1u);
  EXPECT_EQ(find_collective("barrier")->count_for(1024, 4, 3), 0u);
  EXPECT_DOUBLE_EQ(find_collective("allreduce")->bus_factor(4), 1.5);
  EXPECT_DOUBLE_EQ(find_collective("alltoall")->bus_factor(4), 0.75);
  EXPECT_DOUBLE_EQ(find_collective("bcast")->bus_factor(4), 1.0);
  EXPECT_EQ(find_collective(""), nullptr);
}

}  // namespace
}  // namespace perf
