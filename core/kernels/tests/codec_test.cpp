// SPDX-License-Identifier: Apache-2.0
#include "kernels/codec.hpp"

#include <gtest/gtest.h>
#include <tutti/tutti.h>

#include <bit>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <tutti/elements.hpp>
#include <vector>

namespace tutti::core {
namespace {

constexpr size_t block_numbers = CodeKernels::block_numbers;
constexpr uint32_t wires[] = {TUTTI_WIRE_FLOAT16, TUTTI_WIRE_BFLOAT16, TUTTI_WIRE_FLOAT8};
const float infinity = std::numeric_limits<float>::infinity();

std::vector<float> through(const Codec& codec, const std::vector<float>& values) {
  std::vector<uint8_t> codes(codec.bytes(values.size()));
  codec.encode(values, codes.data());
  std::vector<float> decoded(values.size());
  codec.decode(codes.data(), decoded);
  return decoded;
}

// Numbers of every magnitude, some zero, both signs.
std::vector<float> numbers(size_t n, int lowest, int highest, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<float> made(n);
  for (float& x : made) {
    const int exponent = lowest + static_cast<int>(random() % static_cast<uint32_t>(highest - lowest + 1));
    const float fraction = 1.0f + static_cast<float>(random() >> 8) * 0x1p-24f;
    x = random() % 16 == 0 ? 0.0f : std::ldexp(random() % 2 ? fraction : -fraction, exponent);
  }
  return made;
}

// 2^e of a block, by its definition.
double scale_of(const float* block, size_t n) {
  double largest = 0;
  for (size_t i = 0; i < n; ++i)
    if (std::isfinite(block[i])) largest = std::max(largest, std::abs(static_cast<double>(block[i])));
  int e = -126;
  while (largest > std::ldexp(448.0, e)) ++e;
  return std::ldexp(1.0, e);
}

TEST(Codec, KeepsTheBoundsOfTheReadme) {
  for (const int spread : {3, 12, 60, 125}) {
    const std::vector<float> values = numbers(20'000, -spread, spread, 5);
    for (const uint32_t wire : wires) {
      const std::vector<float> decoded = through(Codec(wire), values);
      for (size_t i = 0; i < values.size(); ++i) {
        const double x = std::abs(static_cast<double>(values[i]));
        double bound = std::max(0x1p-8 * x, 0x1p-134);
        if (wire == TUTTI_WIRE_FLOAT16) bound = x < 65520 ? std::max(0x1p-11 * x, 0x1p-25) : INFINITY;
        if (wire == TUTTI_WIRE_FLOAT8) {
          const size_t block = i / block_numbers * block_numbers;
          const double scale = scale_of(&values[block], std::min(block_numbers, values.size() - block));
          bound = std::max(0x1p-4 * x, 0x1p-10 * scale);
        }
        const double error = std::abs(static_cast<double>(decoded[i]) - static_cast<double>(values[i]));
        ASSERT_LE(error, bound) << "wire " << wire << ", number " << values[i] << ", decoded " << decoded[i];
      }
    }
  }
}

TEST(Codec, RoundsToNearestEven) {
  // Every 16-bit code stays what it is, and what lies in the middle of two goes to the even one.
  for (uint32_t code = 0; code < 0x7c00; ++code) {
    const float low = float16::from_bits(static_cast<uint16_t>(code));
    const float high =
        code + 1 < 0x7c00 ? static_cast<float>(float16::from_bits(static_cast<uint16_t>(code + 1))) : 65536.0f;
    const std::vector<float> decoded = through(Codec(TUTTI_WIRE_FLOAT16), {low, -low, (low + high) / 2});
    ASSERT_EQ(decoded[0], low);
    ASSERT_EQ(std::bit_cast<uint32_t>(decoded[1]), std::bit_cast<uint32_t>(-low));
    ASSERT_EQ(decoded[2], code % 2 == 0 ? low : code + 1 < 0x7c00 ? high : infinity);
  }
  // float8: 448 fixes the scale at 1. The nearest of all numbers of the type, ties to the even code.
  std::mt19937 random(3);
  for (int trial = 0; trial < 20'000; ++trial) {
    float x = std::ldexp(static_cast<float>(random() >> 8) * 0x1p-24f, 9 - static_cast<int>(random() % 22));
    if (trial % 2) x = std::ldexp(static_cast<float>(random() % 32), static_cast<int>(random() % 6) - 11);  // many ties
    if (x > 448) continue;
    uint32_t best = 0;
    for (uint8_t code = 0; code < 0x7f; ++code) {
      const double away = std::abs(static_cast<double>(float8_e4m3::from_bits(code)) - static_cast<double>(x));
      const double least =
          std::abs(static_cast<double>(float8_e4m3::from_bits(static_cast<uint8_t>(best))) - static_cast<double>(x));
      if (away < least || (away == least && code % 2 == 0)) best = code;
    }
    ASSERT_EQ(through(Codec(TUTTI_WIRE_FLOAT8), {448, x})[1],
              static_cast<float>(float8_e4m3::from_bits(static_cast<uint8_t>(best))))
        << x;
  }
}

TEST(Codec, SpecialNumbers) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), tiny = std::numeric_limits<float>::denorm_min();
  for (const uint32_t wire : wires) {
    const std::vector<float> decoded = through(Codec(wire), {nan, infinity, -infinity, 1.0f, 0.0f, -0.0f, 1.5f});
    EXPECT_TRUE(std::isnan(decoded[0]));
    if (wire == TUTTI_WIRE_FLOAT8) {
      EXPECT_TRUE(std::isnan(decoded[1]) && std::isnan(decoded[2]));
    } else {
      EXPECT_EQ(decoded[1], infinity);
      EXPECT_EQ(decoded[2], -infinity);
    }
    EXPECT_EQ(decoded[3], 1.0f) << "the block's scale must not come from NaN or infinity";
    EXPECT_EQ(std::bit_cast<uint32_t>(decoded[4]), 0u);
    EXPECT_EQ(std::bit_cast<uint32_t>(decoded[5]), 0x80000000u);
    EXPECT_EQ(decoded[6], 1.5f);
    for (const float zero : through(Codec(wire), std::vector<float>(70))) EXPECT_EQ(std::bit_cast<uint32_t>(zero), 0u);
    EXPECT_EQ(through(Codec(wire), {tiny})[0], 0.0f);
  }
  // Nothing overflows in float8, whatever the block's largest number, unless it rounds beyond float32.
  for (int e = -126; e <= 127; ++e)
    for (const float fraction : {1.0f, 1.74999f, 1.75f, 1.75001f, 1.99999988f}) {
      if (e == 127 && fraction > 1.9f) continue;
      const float x = std::ldexp(fraction, e);
      const float decoded = through(Codec(TUTTI_WIRE_FLOAT8), {x, -x})[1];
      ASSERT_TRUE(std::isfinite(decoded)) << x;
      ASSERT_LE(std::abs(decoded + x), 0x1p-4f * x) << x;
    }
  EXPECT_EQ(through(Codec(TUTTI_WIRE_FLOAT8), {FLT_MAX})[0], infinity);
  EXPECT_EQ(through(Codec(TUTTI_WIRE_FLOAT16), {65519.0f})[0], 65504.0f);
  EXPECT_EQ(through(Codec(TUTTI_WIRE_FLOAT16), {65520.0f})[0], infinity);
}

// Some numbers with any bits, NaN among them.
std::vector<float> any_numbers(size_t n, uint32_t seed) {
  std::vector<float> values = numbers(n, -140, 127, seed);
  std::mt19937 random(seed);
  for (size_t i = 0; i < n; i += 7) values[i] = std::bit_cast<float>(static_cast<uint32_t>(random()));
  return values;
}

std::vector<const KernelTable*> paths() {
  std::vector<const KernelTable*> found;
  for (const CpuPath path : {CpuPath::baseline, CpuPath::avx2, CpuPath::avx512})
    if (const KernelTable* table = kernel_table(path)) found.push_back(table);
  return found;
}

TEST(Codec, EveryProcessorGivesTheSameBits) {
  const std::vector<float> values = any_numbers(4096, 9);
  for (const uint32_t wire : wires)
    for (const size_t n : {0ul, 1ul, 3ul, 15ul, 16ul, 17ul, 31ul, 32ul, 33ul, 70ul, 1000ul, 4096ul})
      for (const KernelTable* path : paths()) {
        const Codec best(wire), other(wire, *path);
        const std::span<const float> some = std::span(values).first(n);
        // One byte more at each end, at an odd address.
        std::vector<uint8_t> a(best.bytes(n) + 2, 0xee), b(a);
        best.encode(some, a.data() + 1);
        other.encode(some, b.data() + 1);
        ASSERT_EQ(a, b) << "wire " << wire << ", " << n;
        ASSERT_EQ(a.front() & a.back(), 0xee) << "wire " << wire << ", " << n;
        std::vector<float> decoded(n + 1, -7.0f), again(n + 1, -7.0f);
        best.decode(a.data() + 1, std::span(decoded).first(n));
        for (size_t first = 0; first < n; first += 64)  // in parts
          other.decode(a.data() + 1 + other.bytes(first),
                       std::span(again).subspan(first, std::min<size_t>(64, n - first)));
        ASSERT_EQ(std::memcmp(decoded.data(), again.data(), (n + 1) * sizeof(float)), 0)
            << "wire " << wire << ", " << n;
        ASSERT_EQ(decoded[n], -7.0f);
      }
}

// Decoded numbers are encoded without another loss: error feedback and calls in a row rely on it.
TEST(Codec, RoundsDecodedNumbersNoFurther) {
  const std::vector<float> values = any_numbers(4096, 21);
  for (const uint32_t wire : wires) {
    const std::vector<float> once = through(Codec(wire), values), twice = through(Codec(wire), once);
    for (size_t i = 0; i < values.size(); ++i)
      ASSERT_TRUE(std::bit_cast<uint32_t>(once[i]) == std::bit_cast<uint32_t>(twice[i]) ||
                  (wire == TUTTI_WIRE_FLOAT8 && std::isinf(once[i]) && std::isnan(twice[i])))
          << "wire " << wire << ", " << values[i] << ", " << once[i] << ", " << twice[i];
  }
}

TEST(Codec, SumsOfCodesAreRoundedOnce) {
  const size_t n = 7 * block_numbers;
  for (const uint32_t wire : wires)
    for (const uint32_t ranks : {1u, 2u, 3u, 8u})
      for (const bool average : {false, true}) {
        const Codec codec(wire);
        std::vector<std::vector<uint8_t>> codes(ranks, std::vector<uint8_t>(codec.bytes(n)));
        std::vector<float> sum(n), part(n);
        std::vector<const void*> sources;
        for (uint32_t rank = 0; rank < ranks; ++rank) {
          codec.encode(numbers(n, -20, 10, rank + 1), codes[rank].data());
          codec.decode(codes[rank].data(), part);
          for (size_t i = 0; i < n; ++i) sum[i] = rank == 0 ? part[i] : sum[i] + part[i];
          sources.push_back(codes[rank].data());
        }
        if (average)
          for (float& x : sum) x /= static_cast<float>(ranks);
        std::vector<uint8_t> expected(codec.bytes(n)), other(codec.bytes(n));
        codec.encode(sum, expected.data());
        const Reduction reduction{{codes[0].data(), other.data()},
                                  2,
                                  sources.data(),
                                  ranks,
                                  units_of(wire, n),
                                  average ? ranks : uint64_t{0},
                                  {false, false}};
        find_code_reduction(wire, average ? TUTTI_AVG : TUTTI_SUM)(reduction);
        if (ranks == 1 && !average) codec.decode(other.data(), part), codec.encode(part, expected.data());
        std::vector<float> a(n), b(n);
        codec.decode(expected.data(), a);
        codec.decode(codes[0].data(), b);  // into the first source
        ASSERT_EQ(a, b) << "wire " << wire << ", " << ranks << " ranks";
        ASSERT_EQ(codes[0], other) << "wire " << wire << ", " << ranks << " ranks";
      }
}

// The table of kernels has one sum of blocks for each instruction set.
TEST(Codec, EveryProcessorAddsBlocksAlike) {
  const Codec codec(TUTTI_WIRE_FLOAT8);
  const size_t n = 50 * block_numbers;
  std::vector<std::vector<uint8_t>> codes(5, std::vector<uint8_t>(codec.bytes(n)));
  std::vector<const void*> sources;
  for (uint32_t i = 0; i < codes.size(); ++i) {
    codec.encode(any_numbers(n, i + 5), codes[i].data());
    sources.push_back(codes[i].data());
  }
  std::vector<uint8_t> first;
  for (const KernelTable* path : paths()) {
    std::vector<uint8_t> sum(codec.bytes(n));
    path->sum_blocks({{sum.data(), nullptr}, 1, sources.data(), 5, n / block_numbers, 5, {false, false}});
    if (first.empty()) first = sum;
    ASSERT_EQ(sum, first);
  }
}

TEST(Codec, OnlySumsOfBlocks) {
  for (const uint32_t op : {TUTTI_MIN, TUTTI_MAX, TUTTI_PROD})
    EXPECT_EQ(find_code_reduction(TUTTI_WIRE_FLOAT8, op), nullptr);
  for (const uint32_t wire : {TUTTI_WIRE_FLOAT16, TUTTI_WIRE_BFLOAT16})
    for (const uint32_t op : {TUTTI_MIN, TUTTI_MAX, TUTTI_SUM, TUTTI_AVG})
      EXPECT_NE(find_code_reduction(wire, op), nullptr);
}

}  // namespace
}  // namespace tutti::core
