// SPDX-License-Identifier: Apache-2.0
//
// The simulation meets the textbook formulas where those hold.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <cmath>

#include "schedule_builder.hpp"

namespace tutti {
namespace {
using namespace hand;

constexpr double latency = 1e-6, per_byte = 1e-9;

CostModel links_only() {
  CostModel model;
  model.link = [](uint32_t, uint32_t) { return LinkCost{latency, per_byte}; };
  model.reduce_per_byte = model.copy_per_byte = model.per_step = 0;
  return model;
}

double cost(const Case& c, uint64_t bytes, uint64_t slices, const CostModel& model) {
  return simulate(c.problem, c.schedules, bytes, 4, slices, model);
}

TEST(Simulate, RingAllReduce) {
  // 2(n-1)a + 2(n-1)/n N/B
  for (const uint32_t n : {2u, 3u, 8u}) {
    const uint64_t bytes = 4 * 4096 * 8 * n;
    const double expected = 2 * (n - 1) * latency + 2.0 * (n - 1) / n * double(bytes) * per_byte;
    EXPECT_NEAR(cost(ring_all_reduce(n), bytes, 1, links_only()), expected, expected * 1e-9) << n;
  }
}

TEST(Simulate, PipelinedLine) {
  // (S+n-2)(a + N/SB): a rank posts its next receive when it has passed the last slice on.
  constexpr uint32_t n = 5;
  constexpr uint64_t bytes = 4 << 20, slices = 16;
  Case c = line_broadcast(n, 0, true);
  const double expected = (slices + n - 2) * (latency + double(bytes) / slices * per_byte);
  EXPECT_NEAR(cost(c, bytes, slices, links_only()), expected, expected * 1e-9);
  EXPECT_LT(cost(c, bytes, slices, links_only()), cost(c, bytes, 1, links_only()));
}

TEST(Simulate, SendsOfARankShareItsEgress) {
  constexpr uint32_t n = 5;
  constexpr uint64_t bytes = 1 << 20;
  const double expected = latency + (n - 1) * double(bytes) * per_byte;
  EXPECT_NEAR(cost(all_to_all(n), bytes, 1, links_only()), expected, expected * 1e-9);
}

TEST(Simulate, LocalWork) {
  CostModel model = links_only();
  model.copy_per_byte = 1e-10;
  model.per_step = 1e-8;
  Case c = make_case(TUTTI_ALL_GATHER, 1);
  c.schedules[0].lanes = {{copy(out(0), in(0))}};
  EXPECT_NEAR(cost(c, 1000, 1, model), 1000 * 1e-10 + 1e-8, 1e-15);
  EXPECT_EQ(cost(ring_all_reduce(1), 0, 1, model), 0);
  model.reduce_per_byte = 1e-9;
  Case sum = direct_all_reduce(2);
  EXPECT_NEAR(cost(sum, 1000, 1, model), latency + 1000 * per_byte + 1000 * 1e-9 + 1e-8, 3e-8);
}

TEST(Simulate, EmptyOperationsCostNothing) {
  EXPECT_EQ(cost(ring_all_reduce(8), 0, 1, links_only()), 0);
  EXPECT_NEAR(cost(direct_barrier(3), 0, 1, links_only()), latency, 1e-12);
}

TEST(Simulate, SameFigureEachTime) {
  const Case c = direct_all_reduce(7);
  CostModel model = links_only();
  model.reduce_per_byte = 1e-10;
  EXPECT_EQ(cost(c, 12345 * 4, 3, model), cost(c, 12345 * 4, 3, model));
}

TEST(Simulate, UnmatchedCostsInfinity) {
  Case c = ring_all_reduce(3);
  c.schedules[0].lanes[0].pop_back();
  EXPECT_TRUE(std::isinf(cost(c, 1000, 1, links_only())));
  EXPECT_TRUE(simulate_steps(c.problem, c.schedules, 1000, 4, links_only()).empty());
}

TEST(Simulate, StepTimes) {
  const Case c = line_broadcast(3, 0, true);
  const auto times = simulate_steps(c.problem, c.schedules, 1000, 4, links_only());
  ASSERT_EQ(times.size(), 3u);
  const StepTime& hop = times[1][0][1];
  EXPECT_EQ(hop.partner_step, 0u);
  EXPECT_NEAR(hop.start, latency + 1000 * per_byte, 1e-12);
  EXPECT_NEAR(times[2][0][0].end, 2 * (latency + 1000 * per_byte), 1e-12);
}

}  // namespace
}  // namespace tutti
