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

TEST(Walk, SamplesAreReadAsWritten) {
  WalkSample sample{3, 400, 12.5, 40, 3.25}, read;
  ASSERT_TRUE(from_line(to_line(sample), &read));
  EXPECT_EQ(to_line(read), to_line(sample));
  EXPECT_FALSE(from_line("", &read));
  EXPECT_FALSE(from_line("3 400 x", &read));
}

}  // namespace
}  // namespace tutti::conformance
