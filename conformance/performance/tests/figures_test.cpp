// SPDX-License-Identifier: Apache-2.0
#include "performance/figures.hpp"

#include <gtest/gtest.h>

namespace tutti::conformance {
namespace {

Figures latency(std::vector<double> own, std::vector<double> limit, double claim = 0) {
  Figures f;
  f.what = "all_reduce of 8 bytes";
  f.yardstick = "a cache line";
  f.own = std::move(own);
  f.limit = std::move(limit);
  f.claim = claim;
  return f;
}

constexpr double us = 1e-6;

TEST(Figures, TenTimesTheYardstickIsNotYetFar) {
  EXPECT_EQ(far_below(latency({0.9 * us}, {0.1 * us})), "");
  const std::string slow = far_below(latency({1.2 * us}, {0.1 * us}));
  EXPECT_NE(slow.find("all_reduce of 8 bytes: 1.2 us at best, while a cache line gives 0.1 us here: 12 times slower"),
            std::string::npos)
      << slow;
}

TEST(Figures, OneGoodRoundClearsTheTransport) {
  EXPECT_EQ(far_below(latency({900 * us, 0.3 * us, 800 * us}, {0.1 * us, 0.1 * us, 0.1 * us})), "");
}

TEST(Figures, OneLuckyRoundOfTheYardstickCondemnsNobody) {
  EXPECT_EQ(far_below(latency({5 * us, 5 * us, 5 * us}, {1 * us, 0.01 * us, 1 * us})), "");
}

TEST(Figures, WhatABusyMachineMayExplainIsNotJudged) {
  const std::vector<double> busy{1 * us, 30 * us, 40 * us, 30 * us, 20 * us};  // 30 times in the middle
  EXPECT_EQ(far_below(latency({2000 * us}, busy)), "");
  EXPECT_NE(
      not_judged(latency({2000 * us}, busy)).find("the machine was busy (a cache line gave 1 us at best and 30 us"),
      std::string::npos)
      << not_judged(latency({2000 * us}, busy));
  EXPECT_NE(far_below(latency({20'000 * us}, busy)), "") << "no load explains that";
  EXPECT_EQ(not_judged(latency({20'000 * us}, busy)), "");
  EXPECT_EQ(not_judged(latency({50 * us}, busy)), "") << "nothing is wrong with it";
  EXPECT_EQ(far_below(latency({9000 * us}, busy, 1 * us)), "") << "nor with a claim";
}

// As when two ranks take turns on one core for as long as a program computes on the other.
TEST(Figures, ASteadilyBusyMachineIsKnownByWhatNoIdleOneTakes) {
  Figures f = latency({122 * us}, {8.7 * us, 8.8 * us, 8.9 * us});
  EXPECT_NE(far_below(f), "") << "who knows how fast it is alone";
  f.idle = 1 * us;
  EXPECT_EQ(far_below(f), "");
  EXPECT_NE(not_judged(f).find("the machine was busy"), std::string::npos) << not_judged(f);
  f.own = {900 * us};
  EXPECT_NE(far_below(f), "") << "no load explains that";
  f.own = {12 * us}, f.limit = {0.9 * us};
  EXPECT_NE(far_below(f), "") << "an idle machine";
}

TEST(Figures, AClaimCountsWhereTheMachineCouldMeetIt) {
  const std::string slow = far_below(latency({30 * us}, {4 * us}, 2 * us));
  EXPECT_NE(slow.find("its own capabilities claim 2 us: 15 times slower"), std::string::npos) << slow;
  EXPECT_EQ(far_below(latency({30 * us}, {4 * us}, 0.08 * us)), "") << "nothing here is as fast as 0.8 us";
  EXPECT_EQ(far_below(latency({30 * us}, {4 * us})), "") << "no claim";
}

TEST(Figures, RatesAreToldAsRates) {
  Figures f = latency({1e-2}, {4e-4}, 1e-3);
  f.what = "4 MiB one way";
  f.bytes = 4e6;
  EXPECT_EQ(far_below(f),
            "4 MiB one way: 0.4 GB/s at best, while a cache line gives 10 GB/s here: 25 times slower, and 10 "
            "times is the limit");
  EXPECT_EQ(in_words(f),
            "4 MiB one way: 0.4 GB/s at best, 0.4 GB/s in the middle; a cache line: 10 GB/s; claimed: 4 GB/s");
}

}  // namespace
}  // namespace tutti::conformance
