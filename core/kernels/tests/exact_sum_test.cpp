// SPDX-License-Identifier: Apache-2.0
//
// Exact sums of every path of this CPU, and those of the SDK, against rational arithmetic.
#include "kernels/exact_sum.hpp"

#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <tutti/sdk/exact_sum.hpp>
#include <vector>

#include "../../tests/harness/rational.hpp"
#include "kernels/kernel_table.hpp"
#include "paths.hpp"

namespace tutti::core {
namespace {

using test::Bits;
using test::Format;
using test::formats;
using test::reference;
using Random = std::mt19937_64;

// ---- Inputs: the contributions of one element.

struct Lot {
  const Format& f;
  Random& random;
  Bits distance;  // of exponents: about the most that level 0 or 1 takes
  uint64_t below(uint64_t n) { return random() % n; }
  bool coin() { return random() % 2; }
  Bits any_sign() { return coin() ? f.sign() : 0; }
  Bits fraction() { return random() & (f.unit() - 1); }
  Bits number(Bits exponent) { return any_sign() | exponent << f.fraction_bits | fraction(); }
  Bits any() { return number(below(f.most_exponent())); }
};

void any_numbers(Lot& lot, std::vector<Bits>& x) {
  for (Bits& v : x) v = lot.any();
}
void neighbouring_exponents(Lot& lot, std::vector<Bits>& x) {
  const Bits least = lot.below(lot.f.most_exponent() - 8);
  for (Bits& v : x) v = lot.number(least + lot.below(8));
}
// Their distance is around what level 1 takes.
void two_magnitudes(Lot& lot, std::vector<Bits>& x) {
  const Bits high = lot.below(lot.f.most_exponent()), low = lot.below(high + 1);
  for (Bits& v : x) v = lot.number(lot.coin() ? high : std::max(low, high - std::min<Bits>(high, 60)));
}
void cancelling(Lot& lot, std::vector<Bits>& x) {
  for (size_t k = 0; k < x.size(); ++k) x[k] = k % 2 ? x[k - 1] ^ lot.f.sign() : lot.any();
  if (lot.coin()) x.back() = lot.coin() ? lot.any() : lot.below(8);
  if (lot.coin()) x.front() ^= 1;  // one unit remains
}
void denormals(Lot& lot, std::vector<Bits>& x) {
  for (Bits& v : x) v = lot.number(lot.below(2));
}
void least_normal_numbers(Lot& lot, std::vector<Bits>& x) {
  const Bits least = lot.below(3);
  for (Bits& v : x) v = lot.number(least + lot.below(4));
}
void extremes(Lot& lot, std::vector<Bits>& x) {
  const Bits values[] = {1, 2, lot.f.unit(), lot.f.greatest(), lot.f.greatest() - 1, lot.any()};
  for (Bits& v : x) v = values[lot.below(6)] ^ lot.any_sign();
}
// Partial sums overflow where the sum does not.
void greatest_numbers(Lot& lot, std::vector<Bits>& x) {
  for (Bits& v : x) v = lot.number(lot.f.most_exponent() - 1 - lot.below(3));
}
// Large ones, whose sum often is halfway between two numbers, and two small ones that cancel but for their last place.
void one_small_unit(Lot& lot, std::vector<Bits>& x) {
  const Bits reach = std::min(lot.distance, lot.f.most_exponent() - 2), most = lot.f.unit() - 1;
  const Bits exponent = reach + 1 + lot.below(lot.f.most_exponent() - 1 - reach), sign = lot.any_sign();
  for (Bits& v : x) v = sign | exponent << lot.f.fraction_bits | (most - 3 - lot.below(lot.f.unit() / 4));
  if (x.size() < 3) return;
  x[0] = lot.any_sign() | (exponent - reach) << lot.f.fraction_bits | most;
  x[1] = (x[0] ^ lot.f.sign()) - 1;
}
// 2^k q + 2^(k-1) of the least number, and one more or less: divided by 2^k, nearly halfway between denormal numbers.
void denormal_quotients(Lot& lot, std::vector<Bits>& x) {
  std::ranges::fill(x, 0);
  x[0] = lot.number(std::bit_width(x.size()) - 1) | 1;
  if (x.size() > 1) x[1] = lot.any_sign() | lot.below(2);
}
// A number and half of its last place.
Bits tie(Lot& lot, std::vector<Bits>& x) {
  const Bits reach = lot.f.fraction_bits + 2, exponent = reach + lot.below(lot.f.most_exponent() - reach);
  std::ranges::fill(x, 0);
  x[0] = lot.number(exponent);
  if (x.size() > 1) x[1] = lot.any_sign() | (exponent - lot.f.fraction_bits - lot.below(2)) << lot.f.fraction_bits;
  return exponent - reach;
}
void ties(Lot& lot, std::vector<Bits>& x) { tie(lot, x); }
// The same with something smaller, perhaps twice with opposite signs, but for one unit, perhaps with the least number.
void near_ties(Lot& lot, std::vector<Bits>& x) {
  const Bits room = tie(lot, x) + 1;
  if (x.size() > 2)
    x[2] = lot.number(lot.coin() ? lot.below(room) : room - 1 - std::min<Bits>(room - 1, lot.below(12)));
  if (x.size() > 3 && lot.coin()) x[3] = x[2] ^ lot.f.sign() ^ lot.below(2);
  if (x.size() > 4 && lot.coin()) x[4] = 1 | lot.any_sign();
}
// The greatest number, half of its last place, and a little.
void overflowing(Lot& lot, std::vector<Bits>& x) {
  std::ranges::fill(x, 0);
  x[0] = lot.f.greatest();
  if (x.size() > 1) x[1] = (lot.f.most_exponent() - 2 - lot.f.fraction_bits) << lot.f.fraction_bits;
  if (x.size() > 2) x[2] = lot.any_sign() | lot.below(2);
  if (x.size() > 4 && lot.coin()) x[3] = lot.f.greatest(), x[4] = lot.f.greatest() | lot.f.sign();
  if (lot.coin())
    for (Bits& v : x) v ^= lot.f.sign();
}
void equal(Lot& lot, std::vector<Bits>& x) {
  std::ranges::fill(x, lot.coin() ? lot.any() : lot.f.greatest() | lot.any_sign());
}
void special_numbers(Lot& lot, std::vector<Bits>& x) {
  any_numbers(lot, x);
  const Bits values[] = {lot.f.infinity(), lot.f.infinity() | lot.f.sign(), lot.f.nan() | lot.f.sign() | 1,
                         lot.f.infinity() | 1};
  for (uint64_t k = lot.below(2) + 1; k; --k) x[lot.below(x.size())] = values[lot.below(4)];
}
void zeros(Lot& lot, std::vector<Bits>& x) {
  const bool mixed = lot.coin();
  for (Bits& v : x) v = mixed ? lot.any_sign() : lot.f.sign();
  if (lot.below(4) == 0) x[lot.below(x.size())] = lot.any_sign() | 1;
}

struct Kind {
  const char* name;
  void (*make)(Lot&, std::vector<Bits>&);
};
const Kind kinds[] = {{"any numbers", any_numbers},
                      {"neighbouring exponents", neighbouring_exponents},
                      {"two magnitudes", two_magnitudes},
                      {"cancelling", cancelling},
                      {"denormals", denormals},
                      {"least normal numbers", least_normal_numbers},
                      {"extremes", extremes},
                      {"greatest numbers", greatest_numbers},
                      {"one small unit", one_small_unit},
                      {"denormal quotients", denormal_quotients},
                      {"ties", ties},
                      {"near ties", near_ties},
                      {"overflowing", overflowing},
                      {"equal", equal},
                      {"special numbers", special_numbers},
                      {"zeros", zeros}};

// ---- Cases.

// `n` sources of `count` elements, and what is right.
class Case {
 public:
  Case(const Format& format, uint32_t n, uint64_t count, uint64_t divisor, uint64_t shift, Random& random)
      : f_(format), count_(count), divisor_(divisor), buffers_(n, std::vector<char>(count * format.bytes + shift)) {
    for (auto& buffer : buffers_) sources_.push_back(buffer.data() + shift);
    std::vector<Bits> in(n);
    // Bits of an accumulator, less those of a number and of the sum's growth, and a little more or less.
    const uint64_t bits = format.bytes == 2 && random() % 4 ? 24 : 53;
    const uint64_t taken = format.fraction_bits + 1 + static_cast<uint64_t>(std::bit_width(n - 1));
    Lot lot{format, random, std::max(bits + random() % 5, taken + 3) - taken - 2};
    // Elements of one kind, since a vector takes the level of its worst element; or all kinds in a vector.
    if (random() % 4) kind_ = &kinds[random() % std::size(kinds)];
    for (uint64_t i = 0; i < count; ++i) {
      kind(i).make(lot, in);
      std::ranges::shuffle(in, random);
      for (uint32_t k = 0; k < n; ++k) std::memcpy(buffers_[k].data() + shift + i * f_.bytes, &in[k], f_.bytes);
      expected_.push_back(reference(format, in, divisor));
    }
  }
  void shuffle(Random& random) { std::ranges::shuffle(sources_, random); }

  // "": all is right.
  std::string run(const Path& path, bool streaming, uint64_t shift) const {
    std::vector<char> out(count_ * f_.bytes + shift + 1, 0x55);
    Reduction r{};
    r.dsts[0] = out.data() + shift;
    r.ndsts = 1;
    r.srcs = sources_.data();
    r.nsrcs = static_cast<uint32_t>(sources_.size());
    r.count = count_;
    r.divisor = divisor_;
    r.streaming[0] = streaming;
    path.table->exact[f_.dtype - TUTTI_FLOAT16](r);
    if (out.back() != 0x55) return "bytes behind the destination were written";
    for (uint64_t i = 0; i < count_; ++i)
      if (const std::string wrong = judge(path.name, i, bits_at(out.data() + shift, i)); !wrong.empty()) return wrong;
    return "";
  }
  // The same by wide_sum alone.
  std::string run_wide() const {
    for (uint64_t i = 0; i < count_; ++i) {
      const double sum = wide_sum(f_.dtype, sources_.data(), static_cast<uint32_t>(sources_.size()), i, divisor_);
      const Vector<double, 1> one{sum};
      Bits got = 0;
      if (f_.dtype == TUTTI_FLOAT16)
        got = ExactFloat16::narrow<1>(one)[0];
      else if (f_.dtype == TUTTI_BFLOAT16)
        got = ExactBfloat16::narrow<1>(one)[0];
      else if (f_.dtype == TUTTI_FLOAT32)
        got = std::bit_cast<uint32_t>(ExactFloat32::narrow<1>(one)[0]);
      else
        got = std::bit_cast<uint64_t>(ExactFloat64::narrow<1>(one)[0]);
      if (const std::string wrong = judge("wide_sum", i, got); !wrong.empty()) return wrong;
    }
    return "";
  }
  // The same by the SDK, for devices.
  std::string run_sdk() const {
    for (uint64_t i = 0; i < count_; ++i) {
      const Bits got = f_.dtype == TUTTI_FLOAT16    ? sdk_sum<TUTTI_FLOAT16>(i)
                       : f_.dtype == TUTTI_BFLOAT16 ? sdk_sum<TUTTI_BFLOAT16>(i)
                       : f_.dtype == TUTTI_FLOAT32  ? sdk_sum<TUTTI_FLOAT32>(i)
                                                    : sdk_sum<TUTTI_FLOAT64>(i);
      if (const std::string wrong = judge("SDK", i, got); !wrong.empty()) return wrong;
    }
    return "";
  }

 private:
  template <uint32_t dtype>
  Bits sdk_sum(uint64_t i) const {
    using Format = sdk::FloatFormat<dtype>;
    return sdk::bits_as<typename Format::Bits>(
        sdk::exact_sum<dtype>(static_cast<uint32_t>(sources_.size()), divisor_, [&](uint32_t k) {
          return sdk::bits_as<typename Format::Stored>(
              static_cast<typename Format::Bits>(bits_at(static_cast<const char*>(sources_[k]), i)));
        }));
  }
  Bits bits_at(const char* buffer, uint64_t i) const {
    Bits bits = 0;
    std::memcpy(&bits, buffer + i * f_.bytes, f_.bytes);
    return bits;
  }
  std::string judge(const char* path, uint64_t i, Bits got) const {
    if (got == expected_[i]) return "";
    char text[256];
    std::snprintf(text, sizeof text,
                  "%s: element %lu of %lu (%s), %zu sources, divisor %lu: expected %lx, got %lx:", path, i, count_,
                  kind(i).name, sources_.size(), divisor_, expected_[i], got);
    std::string all = text;
    for (size_t k = 0; k < std::min<size_t>(sources_.size(), 8); ++k) {
      std::snprintf(text, sizeof text, " %lx", bits_at(static_cast<const char*>(sources_[k]), i));
      all += text;
    }
    return all;
  }

  const Kind& kind(uint64_t i) const { return kind_ ? *kind_ : kinds[i % std::size(kinds)]; }

  const Format& f_;
  uint64_t count_, divisor_;
  const Kind* kind_ = nullptr;
  std::vector<std::vector<char>> buffers_;
  std::vector<const void*> sources_;
  std::vector<Bits> expected_;
};

class ExactSum : public testing::TestWithParam<Format> {};

TEST_P(ExactSum, IsTheRationalSumRoundedOnce) {
  const Format& f = GetParam();
  Random random(f.dtype);
  for (int round = 0; round < 150; ++round)
    for (const uint32_t n : {1u, 2u, 3u, 4u, 5u, 6u, 7u, 8u, 13u, 64u, 1023u, 1024u}) {
      if (n > 64 && round % 10) continue;
      const uint64_t divisors[] = {0, n, n, 3, 2047, (1u << 26) - 1};
      const uint64_t divisor = divisors[round % std::size(divisors)];
      if (n == 1 && divisor <= 1) continue;  // a copy
      const uint64_t shift = random() % 3;
      Case one(f, n, std::size(kinds) * 3 + random() % 20, divisor, shift, random);
      ASSERT_EQ(one.run_wide(), "");
      ASSERT_EQ(one.run_sdk(), "");
      for (const Path& path : paths())
        for (const bool streaming : {false, true}) {
          ASSERT_EQ(one.run(path, streaming, random() % 65), "");
          one.shuffle(random);  // another order of the ranks
        }
    }
}
INSTANTIATE_TEST_SUITE_P(AllTypes, ExactSum, testing::ValuesIn(formats),
                         [](const auto& format) { return dtype_name(format.param.dtype); });

TEST(ExactSum, OfOneSourceIsACopy) {
  const uint32_t in[] = {0x7fa00001, 0xffc00123, 0x80000000, 0x3f800000};  // NaN with payloads, and more
  uint32_t out[4];
  const void* source = in;
  Reduction r{{out, nullptr}, 1, &source, 1, 4, 0, {false, false}};
  for (const Path& path : paths()) {
    path.table->exact[TUTTI_FLOAT32 - TUTTI_FLOAT16](r);
    EXPECT_EQ(std::memcmp(in, out, sizeof in), 0) << path.name;
  }
}

TEST(ExactSum, MayBeWrittenOverASource) {
  std::vector<float> a(100, 1.0f), b(100, 0x1p-24f), c(100, 0x1p-149f);
  const void* sources[] = {a.data(), b.data(), c.data()};
  Reduction r{{b.data(), nullptr}, 1, sources, 3, 100, 0, {false, false}};
  find_exact_sum(TUTTI_FLOAT32)(r);
  for (const float sum : b) EXPECT_EQ(sum, 1 + 0x1p-23f);
}

#if defined(__x86_64__)
TEST(ExactSum, DoesNotDependOnTheThreadsFloatingPointMode) {
  constexpr unsigned modes[] = {0x1f80 | 0x8040 /* denormal numbers are zeros */, 0x1f80 | 0x6000 /* toward zero */};
  Random random(1);
  for (const Format& f : formats)
    for (const uint32_t n : {2u, 4u, 64u}) {
      const Case one(f, n, std::size(kinds) * 8, n == 4 ? n : 0, 0, random);
      for (const unsigned mode : modes)
        for (const Path& path : paths()) {
          _mm_setcsr(mode);
          const std::string wrong = one.run(path, false, 0);
          const unsigned kept = _mm_getcsr() & 0xffc0;
          _mm_setcsr(0x1f80);
          EXPECT_EQ(wrong, "");
          EXPECT_EQ(kept, mode);
        }
    }
}
#endif

TEST(ExactSum, IsDefinedForFourTypes) {
  for (const uint32_t dtype : all_dtypes())
    EXPECT_EQ(find_exact_sum(dtype) != nullptr, dtype >= TUTTI_FLOAT16 && dtype <= TUTTI_FLOAT64) << dtype_name(dtype);
}

}  // namespace
}  // namespace tutti::core
