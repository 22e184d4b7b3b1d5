// SPDX-License-Identifier: Apache-2.0
//
// The oracle is what everything else is measured by: its conversions against the processor's own, its promises of
// exactness and of telling ranks and elements apart by trying them out.
#include <gtest/gtest.h>
#include <tutti/plugin/types.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <random>
#include <set>

#include "oracle/blocks.hpp"
#include "oracle/exact_sum.hpp"
#include "oracle/reference.hpp"

namespace tutti::conformance {
namespace {

constexpr const char* all_types[] = {"int8",      "int16",      "int32",         "int64",        "uint8",
                                     "uint16",    "uint32",     "uint64",        "float16",      "bfloat16",
                                     "float32",   "float64",    "float8_e4m3",   "float8_e5m2",  "bool",
                                     "complex64", "complex128", "float32_int32", "float64_int64"};
constexpr uint32_t every_op[] = {TUTTI_SUM,  TUTTI_PROD, TUTTI_MIN, TUTTI_MAX,  TUTTI_AVG,    TUTTI_BAND,  TUTTI_BOR,
                                 TUTTI_BXOR, TUTTI_LAND, TUTTI_LOR, TUTTI_LXOR, TUTTI_MINLOC, TUTTI_MAXLOC};
constexpr auto every_op_and_the_applications = [] {
  std::array<uint32_t, std::size(every_op) + 2> ops{};
  std::ranges::copy(every_op, ops.begin());
  ops[ops.size() - 2] = app_sum;
  ops.back() = app_compose;
  return ops;
}();
constexpr uint32_t some_ranks[] = {1, 2, 3, 5, 8, 13, 16, 17};

const ElementType& type_of(const char* name) { return *element_type(name); }

TEST(Elements, KnownByName) {
  for (const char* name : all_types) ASSERT_NE(element_type(name), nullptr) << name;
  EXPECT_EQ(element_type("float128"), nullptr);
}

TEST(Elements, Float32AndFloat64AreTheProcessors) {
  std::mt19937_64 random(7);
  for (int i = 0; i < 100'000; ++i) {
    const auto single = static_cast<uint32_t>(random());
    const uint64_t wide = random();
    const float f = std::bit_cast<float>(single);
    const double d = std::bit_cast<double>(wide);
    if (std::isnan(f) || std::isnan(d)) continue;
    ASSERT_EQ(value_of(type_of("float32"), single), f);
    ASSERT_EQ(value_of(type_of("float64"), wide), d);
    ASSERT_EQ(rounded(type_of("float32"), f), single);
    ASSERT_EQ(rounded(type_of("float64"), d), wide);
    // If the exponent fits, a double rounds as the processor rounds it.
    const double mixed =
        std::ldexp(static_cast<double>(static_cast<int64_t>(wide)), static_cast<int>(wide % 200) - 180);
    ASSERT_EQ(rounded(type_of("float32"), mixed), std::bit_cast<uint32_t>(static_cast<float>(mixed))) << mixed;
  }
}

TEST(Elements, RoundingOfNarrowTypesIsToTheNearestEven) {
  for (const char* name : {"float16", "bfloat16", "float8_e4m3", "float8_e5m2"}) {
    const ElementType& t = type_of(name);
    const uint64_t patterns = uint64_t{1} << t.bits();
    std::map<double, uint64_t> numbers;  // all finite values, positive ones
    for (uint64_t bits = 0; bits < patterns / 2; ++bits) {
      if (is_nan(t, bits) || is_infinite(t, bits)) continue;
      ASSERT_EQ(rounded(t, value_of(t, bits)), bits) << name;
      ASSERT_EQ(rounded(t, -value_of(t, bits)), bits | patterns / 2) << name;
      numbers[value_of(t, bits)] = bits;
    }
    for (auto at = numbers.begin(); std::next(at) != numbers.end(); ++at) {
      const auto [low, low_bits] = *at;
      const auto [high, high_bits] = *std::next(at);
      const double middle = (low + high) / 2;
      ASSERT_EQ(rounded(t, middle), low_bits % 2 ? high_bits : low_bits) << name << " " << middle;
      ASSERT_EQ(rounded(t, std::nextafter(middle, low)), low_bits) << name;
      ASSERT_EQ(rounded(t, std::nextafter(middle, high)), high_bits) << name;
    }
  }
  EXPECT_EQ(value_of(type_of("float8_e4m3"), 0x7e), 448);
  EXPECT_TRUE(is_nan(type_of("float8_e4m3"), 0xff));
  EXPECT_EQ(value_of(type_of("float8_e5m2"), 0x7b), 57344);
  EXPECT_TRUE(is_infinite(type_of("float8_e5m2"), 0x7c));
  EXPECT_EQ(value_of(type_of("float16"), 0x7bff), 65504);
  EXPECT_EQ(rounded(type_of("bfloat16"), 1.0), 0x3f80u);
}

TEST(Elements, OrdinalsFollowValues) {
  for (const char* name : {"float16", "float8_e4m3", "float32"}) {
    const ElementType& t = type_of(name);
    std::mt19937_64 random(3);
    for (int i = 0; i < 20'000; ++i) {
      const uint64_t a = truncated(t, random()), b = truncated(t, random());
      if (is_nan(t, a) || is_nan(t, b) || value_of(t, a) == value_of(t, b)) continue;
      ASSERT_EQ(value_of(t, a) < value_of(t, b), ordinal(t, a) < ordinal(t, b)) << name;
    }
    EXPECT_LT(ordinal(t, rounded(t, -0.0)), ordinal(t, 0)) << name;
  }
}

TEST(Elements, SixteenBytesAreHandledAsEight) {
  const ElementType& t = type_of("complex128");
  std::mt19937_64 random(5);
  for (int i = 0; i < 10'000; ++i) {
    uint64_t parts[2];
    const uint64_t bits = random();
    store(t, parts, 0, bits);
    ASSERT_EQ(load(t, parts, 0), bits);
    const auto narrow = std::bit_cast<float>(static_cast<uint32_t>(bits));
    if (std::isnormal(narrow)) {
      ASSERT_EQ(std::bit_cast<double>(parts[0]), narrow);
    }
    // Any other 16 bytes are another element, unless the last bit of the fraction was set anyway.
    for (int bit = 0; bit < 128; ++bit) {
      uint64_t other[2] = {parts[0], parts[1]};
      other[bit / 64] ^= uint64_t{1} << bit % 64;
      const bool is_rest = bit % 64 < 29, odd = bits >> (bit / 64 * 32) & 1;
      ASSERT_EQ(load(t, other, 0) == bits, is_rest && odd) << bit;
    }
  }
}

TEST(Elements, WidePairsAreHandledAsNarrowOnes) {
  const ElementType& t = type_of("float64_int64");
  std::mt19937_64 random(6);
  for (int i = 0; i < 10'000; ++i) {
    int64_t parts[2];
    const uint64_t bits = random(), less = random();
    store(t, parts, 0, bits);
    ASSERT_EQ(load(t, parts, 0), bits);
    int64_t others[2];
    store(t, others, 0, less);
    ASSERT_EQ(static_cast<int32_t>(less >> 32) < static_cast<int32_t>(bits >> 32), others[1] < parts[1]);
    for (int bit = 0; bit < 64; ++bit) {
      const int64_t other[2] = {parts[0], static_cast<int64_t>(static_cast<uint64_t>(parts[1]) ^ uint64_t{1} << bit)};
      ASSERT_NE(load(t, other, 0), bits) << bit;
    }
  }
}

// One step of minloc or maxloc.
uint64_t better_pair(uint32_t op, uint64_t a, uint64_t b) {
  const auto x = std::bit_cast<float>(static_cast<uint32_t>(a)), y = std::bit_cast<float>(static_cast<uint32_t>(b));
  const auto i = static_cast<int32_t>(a >> 32), j = static_cast<int32_t>(b >> 32);
  if (std::isnan(x) != std::isnan(y)) return std::isnan(x) ? a : b;
  if (x < y || x > y) return (x < y) == (op == TUTTI_MINLOC) ? a : b;
  if (std::signbit(x) != std::signbit(y)) return std::signbit(x) == (op == TUTTI_MINLOC) ? a : b;
  return i < j ? a : b;
}

// Folds the inputs of one index in a random order and a random tree, rounding after each step, as algorithms do.
uint64_t in_some_order(const Data& data, uint64_t index, std::mt19937_64& random) {
  const Pattern& p = data.pattern();
  const ElementType& t = *p.type;
  std::vector<uint64_t> terms;
  for (uint32_t r = 0; r < p.nranks; ++r) terms.push_back(data.input(r, index));
  while (terms.size() > 1) {
    std::shuffle(terms.begin(), terms.end(), random);
    const uint64_t a = terms.back();
    terms.pop_back();
    uint64_t& b = terms.back();
    const bool sums = p.op == TUTTI_SUM || p.op == TUTTI_AVG;
    if (t.pair()) {
      b = better_pair(p.op, a, b);
    } else if (t.complex()) {
      const ElementType& part = type_of("float32");
      const auto real = [&](uint64_t v) { return value_of(part, v & 0xffffffff); };
      const auto imaginary = [&](uint64_t v) { return value_of(part, v >> 32); };
      const double x = sums ? real(a) + real(b) : real(a) * real(b) - imaginary(a) * imaginary(b);
      const double y = sums ? imaginary(a) + imaginary(b) : real(a) * imaginary(b) + imaginary(a) * real(b);
      b = rounded(part, x) | rounded(part, y) << 32;
    } else if (t.floating()) {
      const double x = value_of(t, a), y = value_of(t, b);
      b = sums ? rounded(t, x + y) : rounded(t, x * y);
    } else if (p.op >= TUTTI_BAND) {
      const bool truth = t.truth() || p.op >= TUTTI_LAND;
      const uint64_t x = truth ? a != 0 : a, y = truth ? b != 0 : b;
      b = p.op == TUTTI_BAND || p.op == TUTTI_LAND ? x & y : p.op == TUTTI_BOR || p.op == TUTTI_LOR ? x | y : x ^ y;
    } else {
      const auto x = static_cast<uint64_t>(signed_of(t, a)), y = static_cast<uint64_t>(signed_of(t, b));
      b = truncated(t, sums ? x + y : x * y);
    }
  }
  return terms[0];
}

TEST(Data, IsExactInEveryOrder) {
  std::mt19937_64 random(11);
  for (const char* name : all_types)
    for (const uint32_t op : every_op) {
      if (op == TUTTI_MIN || op == TUTTI_MAX || op == TUTTI_AVG || !combines(type_of(name), op)) continue;
      for (const uint32_t n : some_ranks)
        for (uint32_t trial = 0; trial < 3; ++trial) {
          const Data data({&type_of(name), op, n, 40, random(), trial});
          for (uint64_t i = 0; i < 40; ++i) {
            const uint64_t right = data.reduced(i);
            ASSERT_FALSE(is_nan(type_of(name), right) || is_infinite(type_of(name), right)) << name << op << n;
            for (int order = 0; order < 3; ++order)
              ASSERT_TRUE(data.accepts(right, in_some_order(data, i, random)))
                  << name << " op " << op << " ranks " << n << " at " << i;
          }
        }
    }
}

TEST(Data, DependsOnNothingButItsPattern) {
  const Pattern pattern{&type_of("float32"), TUTTI_SUM, 4, 100, 42, 0};
  Pattern other = pattern;
  other.seed = 43;
  int same = 0;
  for (uint64_t i = 0; i < 100; ++i) {
    EXPECT_EQ(Data(pattern).input(2, i), Data(pattern).input(2, i));
    same += Data(pattern).input(2, i) == Data(other).input(2, i);
  }
  EXPECT_LT(same, 5);
}

// The oracle knows all that the library computes for a type.
TEST(Data, CombinesWhatIsDefined) {
  for (const uint32_t dtype : all_dtypes())
    for (const uint32_t op : all_ops()) {
      const ElementType* type = element_type(dtype_name(dtype));
      ASSERT_NE(type, nullptr) << dtype_name(dtype);
      EXPECT_EQ(combines(*type, op), op_is_defined(op, dtype)) << dtype_name(dtype) << " " << op_name(op);
    }
}

// By hand, since nothing else in the suite judges these.
TEST(ExactSums, AreRoundedOnce) {
  const ElementType& t = type_of("float32");
  const auto sum = [&](const std::vector<float>& in, uint64_t divisor = 0) {
    std::vector<uint64_t> bits;
    for (const float x : in) bits.push_back(std::bit_cast<uint32_t>(x));
    return std::bit_cast<float>(static_cast<uint32_t>(exact_sum(t, bits, divisor)));
  };
  constexpr float most = std::numeric_limits<float>::max(), least = 0x1p-149f, none = INFINITY;
  EXPECT_EQ(sum({1, 0x1p-24f}), 1);  // halfway: to even
  EXPECT_EQ(sum({1, 0x1p-24f, least}), 1 + 0x1p-23f);
  EXPECT_EQ(sum({1 + 0x1p-23f, 0x1p-24f, -least}), 1 + 0x1p-23f);
  EXPECT_EQ(sum({most, 3, most, -most, -3}), most);
  EXPECT_EQ(sum({most, 0x1p102f, least}), most);
  EXPECT_EQ(sum({most, 0x1p103f}), none);
  EXPECT_EQ(sum({most, most}, 2), most);
  EXPECT_EQ(sum({least, 0}, 2), 0);  // halfway
  EXPECT_EQ(sum({least, least, least}, 2), 2 * least);
  EXPECT_TRUE(std::signbit(sum({-least, 0}, 3)));
  EXPECT_TRUE(std::signbit(sum({-0.0f, -0.0f})));
  EXPECT_FALSE(std::signbit(sum({-0.0f, 1, -1})));
  EXPECT_EQ(sum({-none, most}), -none);
  EXPECT_TRUE(std::isnan(sum({none, -none})));
  const ElementType& half = type_of("bfloat16");
  EXPECT_EQ(exact_sum(half, {0x3f80, 0x3b80, 0x0001}, 0), 0x3f81u);  // 1 + 2^-8 + the least
  EXPECT_EQ(exact_sum(half, {0x7fa1}, 0), 0x7fa1u);                  // a NaN, copied
}

// The inputs of exact sums are finite, and the rounding of a sum from left to right is seen to be another one.
TEST(ExactSums, DifferFromFolds) {
  for (const char* name : {"float16", "bfloat16", "float32", "float64"}) {
    const ElementType& t = type_of(name);
    const Data data({&t, sum_exactly, 5, 400, 3, 0});
    uint64_t others = 0;
    for (uint64_t i = 0; i < 400; ++i) {
      double folded = 0;
      for (uint32_t r = 0; r < 5; ++r) {
        ASSERT_TRUE(std::isfinite(value_of(t, data.input(r, i))));
        folded += value_of(t, data.input(r, i));
        if (t.bytes < 8) folded = static_cast<float>(folded);
      }
      others += rounded(t, folded) != data.reduced(i);
    }
    EXPECT_GT(others, t.bytes == 2 ? 0u : 20u) << name;  // float often has bits enough
  }
}

// Any two (rank, index) differ in at least one trial.
TEST(Data, TellsAllRanksAndElementsApart) {
  for (const char* name : all_types)
    for (const uint32_t n : some_ranks)
      for (const uint32_t op : {0u, uint32_t{TUTTI_SUM}, uint32_t{TUTTI_PROD}, uint32_t{TUTTI_MIN},
                                uint32_t{TUTTI_BXOR}, uint32_t{TUTTI_LXOR}, uint32_t{TUTTI_MINLOC}, uint32_t{app_sum},
                                uint32_t{app_compose}})
        for (const uint64_t length : {1, 7, 60}) {
          if (op && !combines(type_of(name), op)) continue;
          Pattern pattern{&type_of(name), op, n, length, 5, 0};
          std::set<std::vector<uint64_t>> seen;
          const uint32_t trials = trials_of(pattern);
          for (uint32_t r = 0; r < n; ++r)
            for (uint64_t i = 0; i < length; ++i) {
              std::vector<uint64_t> values;
              for (pattern.trial = 0; pattern.trial < trials; ++pattern.trial)
                values.push_back(Data(pattern).input(r, i));
              ASSERT_TRUE(seen.insert(values).second) << name << " op " << op << " ranks " << n << " of " << length
                                                      << ": rank " << r << " index " << i << ", trials " << trials;
            }
        }
}

// A contribution that is lost or counted twice shows at some index of some trial, whichever rank's it is.
TEST(Data, ShowsWhatIsMissingAndWhatIsDoubled) {
  for (const char* name : all_types)
    for (const uint32_t op : every_op_and_the_applications)
      for (const uint32_t n : {2u, 5u, 16u, 17u})
        for (const uint64_t length : {1, 40}) {
          if (!combines(type_of(name), op)) continue;
          Pattern pattern{&type_of(name), op, n, length, 9, 0};
          const uint32_t trials = trials_of(pattern);
          for (uint32_t r = 0; r < n; ++r) {
            bool missing = false, doubled = false;
            for (pattern.trial = 0; pattern.trial < trials; ++pattern.trial) {
              const Data data(pattern);
              for (uint64_t i = 0; i < length; ++i) {
                missing |= !data.accepts(data.reduced(i), data.reduced_without(r, i));
                doubled |= !data.accepts(data.reduced(i), data.reduced_twice(r, i));
              }
            }
            EXPECT_TRUE(missing) << name << " op " << op << " ranks " << n << " of " << length << ": rank " << r;
            const bool forgets = op == TUTTI_BAND || op == TUTTI_BOR || op == TUTTI_LAND || op == TUTTI_LOR;
            if (op != TUTTI_MIN && op != TUTTI_MAX && op < TUTTI_MINLOC && !forgets) {
              EXPECT_TRUE(doubled) << name << " op " << op << " ranks " << n << " of " << length << ": rank " << r;
            }
          }
        }
}

// Two neighbours that changed places show, for the operator that does not commute; brackets do not.
TEST(Data, ShowsOperandsOutOfOrder) {
  for (const char* name : {"int8", "uint16", "float32", "uint64"})
    for (const uint32_t n : {2u, 5u, 17u}) {
      const ElementType& type = type_of(name);
      Pattern pattern{&type, app_compose, n, 40, 9, 0};
      const Data data(pattern);
      for (uint32_t r = 0; r + 1 < n; ++r) {
        bool exchanged = false;
        for (uint64_t i = 0; i < pattern.length; ++i) {
          const auto folded = [&](uint32_t begin, uint32_t end, bool exchange) {
            const auto at = [&](uint32_t k) { return !exchange ? k : k == r ? r + 1 : k == r + 1 ? r : k; };
            uint64_t whole = data.input(at(begin), i);
            for (uint32_t k = begin + 1; k < end; ++k) whole = combined(type, app_compose, whole, data.input(at(k), i));
            return whole;
          };
          ASSERT_EQ(combined(type, app_compose, folded(0, r + 1, false), folded(r + 1, n, false)), data.reduced(i));
          exchanged |= folded(0, n, true) != data.reduced(i);
        }
        EXPECT_TRUE(exchanged) << name << ": ranks " << r << " and " << r + 1 << " of " << n;
      }
    }
}

TEST(Data, HasSpecialValuesInMinAndMax) {
  Pattern pattern{&type_of("float32"), TUTTI_MIN, 3, 2000, 1, 0};
  pattern.trial = trials_of(pattern) - 1;
  const Data data(pattern);
  int nan = 0, infinite = 0, negative_zero = 0;
  for (uint64_t i = 0; i < pattern.length; ++i) {
    nan += is_nan(*pattern.type, data.reduced(i));
    infinite += is_infinite(*pattern.type, data.reduced(i));
    negative_zero += data.reduced(i) == 0x80000000u;
  }
  EXPECT_GT(nan, 5);
  EXPECT_GT(infinite, 2);
  EXPECT_GT(negative_zero, 5);
}

TEST(Data, HasTiesInMinlocAndMaxloc) {
  for (const uint32_t op : {TUTTI_MINLOC, TUTTI_MAXLOC})
    for (const uint64_t length : {1, 2000}) {
      Pattern pattern{&type_of("float32_int32"), op, 5, length, 1, 0};
      int ties = 0, nans = 0, zeros = 0;
      for (const uint32_t trials = trials_of(pattern); pattern.trial < trials; ++pattern.trial) {
        const Data data(pattern);
        for (uint64_t i = 0; i < length; ++i) {
          const auto value = static_cast<uint32_t>(data.reduced(i));
          int winners = 0;
          for (uint32_t r = 0; r < 5; ++r) winners += static_cast<uint32_t>(data.input(r, i)) == value;
          ties += winners > 1;
          nans += winners > 1 && std::isnan(std::bit_cast<float>(value));
          zeros += value << 1 == 0;
        }
      }
      EXPECT_GT(ties, length == 1 ? 0 : 200);
      EXPECT_TRUE(length == 1 || (nans > 2 && zeros > 5)) << nans << " " << zeros;
    }
}

TEST(Data, GrantsTwoUlpToFloatingAverages) {
  const Data average({&type_of("float32"), TUTTI_AVG, 3, 10, 1, 0}), sum({&type_of("float32"), TUTTI_SUM, 3, 10, 1, 0});
  const uint64_t right = rounded(type_of("float32"), 10.0);
  EXPECT_TRUE(average.accepts(right, right + 2));
  EXPECT_TRUE(average.accepts(right, right - 2));
  EXPECT_FALSE(average.accepts(right, right + 3));
  EXPECT_FALSE(average.accepts(right, right - 3));
  EXPECT_FALSE(average.accepts(right, rounded(type_of("float32"), NAN)));
  EXPECT_FALSE(sum.accepts(right, right + 1));
  EXPECT_FALSE(Data({&type_of("int32"), TUTTI_AVG, 3, 10, 1, 0}).accepts(10, 11));
}

TEST(Data, IntegerAveragesWrapThenTruncateTowardZero) {
  const Pattern pattern{&type_of("int8"), TUTTI_AVG, 5, 300, 2, 0};
  const Data data(pattern);
  for (uint64_t i = 0; i < pattern.length; ++i) {
    int sum = 0;
    for (uint32_t r = 0; r < 5; ++r) sum += static_cast<int8_t>(data.input(r, i));
    EXPECT_EQ(static_cast<int8_t>(data.reduced(i)), static_cast<int8_t>(sum) / 5);
  }
}

// Every collective on a small example, written out.
TEST(Reference, SaysWhatEachCollectiveMeans) {
  const ElementType& t = type_of("uint32");
  struct Expected {
    uint32_t collective, op, rank;
    uint32_t in_blocks, out_blocks;
    std::vector<std::pair<uint32_t, uint64_t>> from;  // rank and index of each output element; empty: reduced from 0
    uint64_t reduced_from = 0;
    uint32_t reduced_ranks = 3;
  };
  const Expected cases[] = {{TUTTI_BROADCAST, 0, 2, 0, 1, {{1, 0}, {1, 1}}},
                            {TUTTI_BROADCAST, 0, 1, 1, 1, {{1, 0}, {1, 1}}},
                            {TUTTI_REDUCE, TUTTI_SUM, 1, 1, 1, {}},
                            {TUTTI_REDUCE, TUTTI_SUM, 0, 1, 0, {}},
                            {TUTTI_ALL_REDUCE, TUTTI_SUM, 2, 1, 1, {}},
                            {TUTTI_GATHER, 0, 1, 1, 3, {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}},
                            {TUTTI_GATHER, 0, 2, 1, 0, {}},
                            {TUTTI_ALL_GATHER, 0, 2, 1, 3, {{0, 0}, {0, 1}, {1, 0}, {1, 1}, {2, 0}, {2, 1}}},
                            {TUTTI_SCATTER, 0, 2, 0, 1, {{1, 4}, {1, 5}}},
                            {TUTTI_SCATTER, 0, 1, 3, 1, {{1, 2}, {1, 3}}},
                            {TUTTI_REDUCE_SCATTER, TUTTI_SUM, 2, 3, 1, {}, 4},
                            {TUTTI_ALL_TO_ALL, 0, 2, 3, 3, {{0, 4}, {0, 5}, {1, 4}, {1, 5}, {2, 4}, {2, 5}}},
                            {TUTTI_BARRIER, 0, 0, 0, 0, {}},
                            {TUTTI_SCAN, TUTTI_SUM, 0, 1, 1, {}, 0, 1},
                            {TUTTI_SCAN, TUTTI_AVG, 1, 1, 1, {}, 0, 2},
                            {TUTTI_EXCLUSIVE_SCAN, TUTTI_SUM, 0, 1, 0, {}},
                            {TUTTI_EXCLUSIVE_SCAN, TUTTI_AVG, 2, 1, 1, {}, 0, 2}};
  for (const Expected& e : cases) {
    const Operation o{e.collective, 3, 1, 2};
    EXPECT_EQ(blocks_in(o, e.rank), e.in_blocks) << e.collective;
    EXPECT_EQ(blocks_out(o, e.rank), e.out_blocks) << e.collective;
    const Data data({&t, e.op, 3, data_length(o), 77, 0});
    for (uint64_t i = 0; i < e.out_blocks * o.count; ++i)
      EXPECT_EQ(expected_output(o, data, e.rank, i), e.op ? data.reduced(e.reduced_from + i, e.reduced_ranks)
                                                          : data.input(e.from[i].first, e.from[i].second))
          << e.collective << " at " << i;
  }
}

// Of the first ranks alone, also the average.
TEST(Data, ReducesTheFirstRanks) {
  const Data sum({&type_of("int64"), TUTTI_SUM, 4, 9, 3, 0}), average({&type_of("int64"), TUTTI_AVG, 4, 9, 3, 0});
  for (uint64_t i = 0; i < 9; ++i) {
    EXPECT_EQ(sum.reduced(i, 1), sum.input(0, i));
    EXPECT_EQ(sum.reduced(i, 2), sum.input(0, i) + sum.input(1, i));
    EXPECT_EQ(sum.reduced(i, 4), sum.reduced(i));
    const auto two = static_cast<int64_t>(average.input(0, i) + average.input(1, i));
    EXPECT_EQ(static_cast<int64_t>(average.reduced(i, 2)), two / 2);
  }
}

// Three ranks, root 1, in which the blocks grow: of rank 0 or for it 1, of rank 1 2, of rank 2 3 elements, or 1, 2, 3
// in turns where each pair has a block.
TEST(Reference, SaysWhatUnequalBlocksMean) {
  const ElementType& t = type_of("uint32");
  struct Expected {
    uint32_t collective, op, rank;
    uint64_t in_elements;
    std::vector<std::pair<uint32_t, uint64_t>> from;  // as above
    uint64_t out_elements = 0, reduced_from = 0;
  };
  const Expected cases[] = {
      {TUTTI_GATHER_V, 0, 1, 2, {{0, 0}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {2, 2}}},
      {TUTTI_GATHER_V, 0, 2, 3, {}},
      {TUTTI_ALL_GATHER_V, 0, 2, 3, {{0, 0}, {1, 0}, {1, 1}, {2, 0}, {2, 1}, {2, 2}}},
      {TUTTI_SCATTER_V, 0, 2, 0, {{1, 3}, {1, 4}, {1, 5}}},
      {TUTTI_SCATTER_V, 0, 1, 6, {{1, 1}, {1, 2}}},
      {TUTTI_REDUCE_SCATTER_V, TUTTI_SUM, 2, 6, {}, 3, 3},
      {TUTTI_REDUCE_SCATTER_V, TUTTI_SUM, 0, 6, {}, 1, 0},
      {TUTTI_ALL_TO_ALL_V, 0, 1, 6, {{0, 1}, {0, 2}, {1, 1}, {1, 2}, {2, 1}, {2, 2}}},
  };
  for (const Expected& e : cases) {
    const Operation o{e.collective, 3, 1, 2};
    ASSERT_EQ((o.count / 2 + o.nranks) % 4, 0u) << "another spread";
    EXPECT_EQ(elements_in(o, e.rank), e.in_elements) << e.collective;
    const uint64_t out = e.op ? e.out_elements : e.from.size();
    ASSERT_EQ(elements_out(o, e.rank), out) << e.collective;
    const Data data({&t, e.op, 3, data_length(o), 77, 0});
    for (uint64_t i = 0; i < out; ++i)
      EXPECT_EQ(expected_output(o, data, e.rank, i),
                e.op ? data.reduced(e.reduced_from + i) : data.input(e.from[i].first, e.from[i].second))
          << e.collective << " at " << i;
  }
}

// Counts that differ by two have different spreads, and odd ones lie in reverse order. Ranks give what others get.
TEST(Reference, UnequalBlocksFitTogether) {
  for (uint32_t n = 1; n <= 5; ++n)
    for (uint64_t count = 0; count <= 12; ++count)
      for (uint32_t c = TUTTI_GATHER_V; c <= TUTTI_ALL_TO_ALL_V; ++c) {
        const Operation o{c, n, n - 1, count};
        for (uint32_t rank = 0; rank < n; ++rank) {
          uint64_t at = 0;
          const Arrays arrays = arrays_of(o, rank, false);
          EXPECT_EQ(arrays.displacements.empty(), count % 2 == 0 || arrays.counts.empty());
          for (uint64_t i = 0; i < elements_out(o, rank); ++i, ++at) {
            const Position place = position_of(o, rank, i);
            EXPECT_EQ(block_begin(o, rank, false, place.block) + place.within, at);
            EXPECT_LT(place.within, arrays.counts[place.block]);
          }
          for (uint32_t b = 0; c == TUTTI_ALL_TO_ALL_V && b < n; ++b)
            EXPECT_EQ(block_elements(o, rank, true, b), block_elements(o, b, false, rank));
        }
      }
}

}  // namespace
}  // namespace tutti::conformance
