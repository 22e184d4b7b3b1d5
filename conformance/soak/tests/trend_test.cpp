// SPDX-License-Identifier: Apache-2.0
#include "soak/trend.hpp"

#include <gtest/gtest.h>

#include "soak/walk.hpp"

namespace tutti::conformance {
namespace {

TEST(Trend, SaysNothingBeforeItKnows) {
  Trend trend("bytes", "MiB", 1, 0);
  for (int i = 0; i < 8; ++i) trend.add(i * 100);
  EXPECT_FALSE(trend.known());
  EXPECT_EQ(trend.growth(), "");
}

TEST(Trend, ALeakIsFoundAndNamed) {
  Trend trend("resident bytes", "MiB", 1, 0);
  for (int i = 0; i < 30; ++i) trend.add(100 + i);
  EXPECT_EQ(trend.growth(),
            "resident bytes grow: at least 110.0 MiB in the second third of the time, at least 120.0 in the last; 1.0 "
            "more is noise");
}

TEST(Trend, WarmUpNoiseAndFallsAreNone) {
  Trend warm("x", "", 1, 0), noisy("x", "", 3, 0), falling("x", "", 1, 0), share("x", "", 0, 0.1);
  for (int i = 0; i < 30; ++i) {
    warm.add(i < 10 ? i * 50 : 500);
    noisy.add(100 + i * 37 % 50);
    falling.add(100 - i);
    share.add(1000 + i);
  }
  EXPECT_EQ(warm.growth(), "");
  EXPECT_EQ(noisy.growth(), "");
  EXPECT_EQ(falling.growth(), "");
  EXPECT_EQ(share.growth(), "");
}

TEST(Trend, OneSpikeIsNoGrowth) {
  Trend trend("x", "", 1, 0);
  for (int i = 0; i < 30; ++i) trend.add(i == 27 ? 1e6 : 5);
  EXPECT_EQ(trend.growth(), "");
}

// Three ranks for ten minutes: what is watched of them, interval by interval, and something put in.
std::vector<std::string> judged(void (*put_in)(double interval, WalkSample& sum)) {
  Watched watched;
  for (int i = 0; i < 60; ++i) {
    const double wave = i * 37 % 11;
    WalkSample sum{0, 0, 42 + wave, 2 + 0.01 * wave, 33 + i % 3 * 1.0, 8 + wave * 40};
    put_in(i, sum);
    watched.resident.add(sum.resident);
    watched.allocated.add(sum.allocated);
    watched.descriptors.add(sum.descriptors);
    watched.latency.add(sum.latency);
  }
  return watched.growth();
}

TEST(Watched, NoiseAndTheWarmingUpOfCachesAreNoGrowth) {
  EXPECT_EQ(judged([](double, WalkSample&) {}), std::vector<std::string>{});
  EXPECT_EQ(judged([](double i, WalkSample& sum) { sum.allocated += std::min(i, 15.0) * 0.1; }),
            std::vector<std::string>{});
  EXPECT_EQ(judged([](double i, WalkSample& sum) { sum.latency += i > 40 && i < 55 ? 90'000 : 0; }),
            std::vector<std::string>{})
      << "a neighbour's fifteen busy intervals";
}

TEST(Watched, EachKindOfDriftIsFoundByItsName) {
  const auto only = [](const std::vector<std::string>& growth, const char* name) {
    return growth.size() == 1 && growth.front().starts_with(name);
  };
  EXPECT_TRUE(only(judged([](double i, WalkSample& sum) { sum.allocated += i * 0.03; }), "allocated bytes grow"))
      << "a KiB a second and rank";
  EXPECT_TRUE(only(judged([](double i, WalkSample& sum) { sum.resident += i; }), "resident bytes grow"));
  EXPECT_TRUE(only(judged([](double i, WalkSample& sum) { sum.descriptors += i / 4; }), "open descriptors grow"));
  EXPECT_TRUE(
      only(judged([](double i, WalkSample& sum) { sum.latency += i * 200; }), "times of a small all_reduce grow"));
}

TEST(Walk, SamplesAreReadAsWritten) {
  WalkSample sample{3, 400, 12.5, 1.25, 40, 3.25}, read;
  ASSERT_TRUE(from_line(to_line(sample), &read));
  EXPECT_EQ(to_line(read), to_line(sample));
  EXPECT_FALSE(from_line("", &read));
  EXPECT_FALSE(from_line("3 400 x", &read));
}

}  // namespace
}  // namespace tutti::conformance
