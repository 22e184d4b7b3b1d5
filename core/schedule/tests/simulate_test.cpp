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

// Ranks of a host share its network: of four messages between the same two hosts only one moves at a time.
TEST(Simulate, RanksOfAHostShareItsNetwork) {
  constexpr uint32_t n = 4;
  constexpr uint64_t bytes = 1 << 20;
  Case c = all_to_all(n);
  CostModel model = links_only();
  const double one = double(bytes) * per_byte;
  EXPECT_NEAR(cost(c, bytes, 1, model), latency + 3 * one, one * 1e-9);
  model.hosts.assign(2, {per_byte, 1});
  EXPECT_NEAR(cost(c, bytes, 1, model), latency + 3 * one, one * 1e-9) << "the problem names no hosts";
  c.problem.hosts = {0, 0, 1, 1};
  EXPECT_GE(cost(c, bytes, 1, model), latency + 4 * one);
  model.hosts.assign(2, {per_byte / 2, 1});  // two rails
  EXPECT_LT(cost(c, bytes, 1, model), latency + 4 * one);
}

// A gap keeps both ends busy, and the processors of their hosts.
TEST(Simulate, GapsOfMessages) {
  constexpr uint32_t n = 4;
  double gap = latency / 10;
  CostModel model = links_only();
  model.link = [&](uint32_t, uint32_t) { return LinkCost{latency, 0, gap}; };
  Case c = all_to_all(n);
  EXPECT_NEAR(cost(c, 400, 1, model), latency + 3 * gap, 1e-12) << "three sent, three received at the same time";
  gap = latency * 10;
  EXPECT_NEAR(cost(c, 400, 1, model), 6 * gap, 1e-12) << "the processor's work";
  c.problem.hosts = {0, 0, 1, 1};
  model.hosts.assign(2, {0, 4});
  EXPECT_NEAR(cost(c, 400, 1, model), 6 * gap, 1e-12) << "a core for each";
  model.hosts.assign(2, {0, 1});
  EXPECT_GE(cost(c, 400, 1, model), 12 * gap) << "two ranks of a host share one core";
}

// The busiest rank bounds the time, n - 1 messages out and n - 1 in, and so do the processors that ranks share.
TEST(Simulate, MessagesCostTheProcessor) {
  constexpr uint32_t n = 4;
  CostModel model = links_only();
  model.per_message = 1e-4;
  Case c = all_to_all(n);
  c.problem.hosts.assign(n, 0);
  for (const double processors : {1, 2, 4, 8}) {
    model.hosts = {{0, processors}};
    EXPECT_NEAR(cost(c, 400, 1, model), 2 * (n - 1) * 1e-4 * std::max(1.0, n / processors), 1e-12) << processors;
  }
  EXPECT_EQ(cost(c, 0, 1, model), 0);  // no message is sent
}

// A connection to each of the others counts once, however many messages it carries.
TEST(Simulate, PeersCostTheProcessor) {
  CostModel model = links_only();
  model.per_peer = 1e-3;
  EXPECT_NEAR(cost(all_to_all(4), 400, 1, model), 3e-3, 1e-9);
  EXPECT_NEAR(cost(ring_all_reduce(4), 400, 1, model), 2e-3, 1e-9);
  EXPECT_NEAR(cost(ring_all_reduce(2), 400, 1, model), 1e-3, 1e-9) << "one that sends and receives";
}

// A rank that waits gives its processor to another one: once for all messages that come in one round.
TEST(Simulate, WaitsCostTheProcessorsThatRanksShare) {
  constexpr uint32_t n = 4;
  constexpr double per_switch = 1e-2;  // beside it nothing counts
  CostModel model = links_only();
  model.per_switch = per_switch;
  const auto switches = [&](Case c, double processors, uint64_t bytes = 400) {
    c.problem.hosts.assign(n, 0);
    model.hosts = {{0, processors}};
    return std::round(cost(c, bytes, 1, model) * processors / per_switch);
  };
  EXPECT_EQ(switches(all_to_all(n), 2), n);
  EXPECT_EQ(switches(ring_all_reduce(n), 2), 2 * (n - 1) * n);
  EXPECT_EQ(switches(ring_all_reduce(n), 1), 2 * (n - 1) * n);
  EXPECT_EQ(switches(ring_all_reduce(n), 4), 0) << "a processor for each";
  EXPECT_EQ(switches(ring_all_reduce(n), 2, 0), 0) << "no message is sent";
}

// Messages with a gap find their receivers off the processors of a host that has too few of them.
TEST(Simulate, ReceiversWakeWhereRanksOutnumberProcessors) {
  constexpr uint32_t n = 4;
  constexpr double gap = latency / 100;
  CostModel model = links_only();
  model.per_wake = 1e-3;
  model.link = [](uint32_t, uint32_t) { return LinkCost{latency, 0, gap}; };
  Case c = ring_all_reduce(n);
  const auto wakes = [&](double processors, std::vector<uint32_t> hosts) {
    c.problem.hosts = std::move(hosts);
    model.hosts.assign(c.problem.hosts[n - 1] + 1, {0, processors});
    return std::round(cost(c, 400, 1, model) / model.per_wake);
  };
  EXPECT_EQ(wakes(2, {0, 0, 0, 0}), 2 * (n - 1)) << "each waits for another one";
  EXPECT_EQ(wakes(1, {0, 0, 0, 0}), 2 * (n - 1) * 3) << "for three";
  EXPECT_EQ(wakes(4, {0, 0, 0, 0}), 0);
  EXPECT_EQ(wakes(1, {0, 1, 2, 3}), 0) << "a host for each";
  model.link = [](uint32_t, uint32_t) { return LinkCost{latency, 0}; };
  EXPECT_EQ(wakes(1, {0, 0, 0, 0}), 0) << "without the operating system";
}

// Messages through memory find their receivers off the processors as well, but for schedules without a circle.
TEST(Simulate, RanksWaitForTheirTurnWhereTheyOutnumberProcessors) {
  constexpr uint32_t n = 4;
  CostModel model = links_only();
  model.per_turn = 1;  // beside it nothing counts
  const auto turns = [&](Case c, double processors, std::vector<uint32_t> hosts = {0, 0, 0, 0}) {
    c.problem.hosts = std::move(hosts);
    model.hosts.assign(c.problem.hosts[n - 1] + 1, {0, processors});
    return std::round(cost(c, 400, 1, model));
  };
  EXPECT_EQ(turns(all_to_all(n), 2), 1) << "all messages at once";
  EXPECT_EQ(turns(ring_all_reduce(n), 2), 2 * (n - 1));
  EXPECT_EQ(turns(ring_all_reduce(n), 4), 0) << "a processor for each";
  EXPECT_EQ(turns(ring_all_reduce(n), 1, {0, 0, 1, 1}), n - 1) << "every other message goes to another host";
  EXPECT_EQ(turns(line_broadcast(n, 0), 2), 0) << "the first ranks run ahead";
  model.link = [](uint32_t, uint32_t) { return LinkCost{latency, 0, latency}; };
  EXPECT_EQ(turns(ring_all_reduce(n), 2), 0) << "by the operating system";
}

// Where no rank waits for itself by way of others calls overlap: the first takes its way, the others what a rank sends.
TEST(Simulate, CallsWithoutACircleOverlap) {
  constexpr double gap = latency / 100;
  CostModel model = links_only();
  model.link = [](uint32_t, uint32_t) { return LinkCost{latency, per_byte, gap}; };
  const Case line = line_broadcast(5, 0), ring = ring_all_reduce(4);
  const double alone = cost(line, 400, 1, model), around = cost(ring, 400, 1, model);
  model.calls_in_a_row = 4;
  EXPECT_NEAR(cost(line, 400, 1, model), (alone + 3 * (gap + 400 * per_byte)) / 4, 1e-12);
  EXPECT_EQ(cost(ring, 400, 1, model), around);
  EXPECT_EQ(simulate(line.problem, line.schedules, 400, 4, 1, model, alone / 2), cost(line, 400, 1, model))
      << "the way may be longer than the limit";
  model.link = [](uint32_t, uint32_t) { return LinkCost{latency, per_byte}; };
  EXPECT_EQ(cost(line, 400, 1, model), 4 * (latency + 400 * per_byte)) << "nothing is buffered";
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

// A ring of four moves a block of one element in six messages, one after the other: three of its pieces are empty. What
// awaits an empty step goes on at once.
TEST(Simulate, EmptyStepsCostNothing) {
  EXPECT_NEAR(cost(ring_all_reduce(4), 4, 1, links_only()), 6 * (latency + 4 * per_byte), 1e-12);
  Case c = make_case(TUTTI_BROADCAST, 2);
  for (Schedule& schedule : c.schedules) schedule.cuts = equal_cuts(2);
  c.schedules[0].lanes = {{send(1, in(0)), send(1, in(1))}, {after(send(1, in(1)), 0, 0)}, {after(nop(), 0, 1)}};
  c.schedules[1].lanes = {{recv(0, out(0)), recv(0, out(1))}, {recv(0, out(1))}, {}};
  EXPECT_NEAR(cost(c, 4, 1, links_only()), latency + 2 * 4 * per_byte, 1e-12) << "the two share what sends";
  c.schedules[0].lanes[1] = {after(send(1, in(1)), 0, 1)};
  c.schedules[0].lanes[2] = {};
  EXPECT_NEAR(cost(c, 4, 1, links_only()), latency + 2 * 4 * per_byte, 1e-12);
}

TEST(Simulate, SameFigureEachTime) {
  const Case c = direct_all_reduce(7);
  CostModel model = links_only();
  model.reduce_per_byte = 1e-10;
  EXPECT_EQ(cost(c, 12345 * 4, 3, model), cost(c, 12345 * 4, 3, model));
}

// all_reduce over hosts of `local` ranks: to the host's first rank, around those in a ring, and back to all. What moves
// within a host is the whole block, a run of the ring's chunks.
Case hosts_all_reduce(uint32_t hosts, uint32_t local) {
  Case c = make_case(TUTTI_ALL_REDUCE, hosts * local);
  const Case ring = ring_all_reduce(hosts);
  for (uint32_t r = 0; r < hosts * local; ++r) {
    Schedule& s = c.schedules[r];
    s.flags = TUTTI_SCHEDULE_SLICED;
    s.cuts = equal_cuts(hosts);
    auto& lane = s.lanes.emplace_back();
    const uint32_t host = r / local, leader = host * local;
    if (r != leader) {
      lane = {send(leader, in(0, hosts), TUTTI_STEP_LOAD), recv(leader, out(0, hosts))};
      continue;
    }
    for (uint32_t k = 1; k < local; ++k)
      lane.push_back(
          recv_reduce(r + k, out(0, hosts), k == 1 ? in(0, hosts) : out(0, hosts), k == 1 ? TUTTI_STEP_LOAD : 0));
    for (Step step : ring.schedules[host].lanes[0]) {
      step.op.peer *= local;
      step.op.flags &= ~uint32_t{TUTTI_STEP_LOAD};
      if (step.op.src.buffer == TUTTI_BUFFER_IN) step.op.src.buffer = TUTTI_BUFFER_OUT;
      lane.push_back(step);
    }
    for (uint32_t k = 1; k < local; ++k) lane.push_back(send(r + k, out(0, hosts)));
  }
  return c;
}

// Slices pipeline over a hierarchy: while one is handed out on the host, the next comes in. Of 4 ranks a host's first
// one takes in 3 blocks, moves 3/2 around the ring and gives out 3: one after the other, or what comes in beside the
// rest.
TEST(Simulate, RunsInSlicesPipelineAHierarchy) {
  const Case c = hosts_all_reduce(4, 4);
  ASSERT_EQ(verify(c.problem, c.schedules).error, "");
  const double whole = cost(c, 1 << 24, 1, links_only()), sliced = cost(c, 1 << 24, 32, links_only());
  EXPECT_NEAR(whole, 7.5 * (1 << 24) * per_byte, 0.01 * whole);
  EXPECT_NEAR(sliced, 4.5 * (1 << 24) * per_byte, 0.1 * sliced);
}

// Up to the limit the result is the same; above it only that is known. Work, waits, messages and slices each exceed it.
TEST(Simulate, ResultsAboveALimitAreOnlyKnownToBeAbove) {
  CostModel waits = links_only(), work = links_only();
  waits.per_switch = 1e-5;
  work.per_message = 1e-5;
  CostModel rows = work;
  rows.calls_in_a_row = 4;
  rows.link = [](uint32_t, uint32_t) { return LinkCost{latency, per_byte, latency / 100}; };
  for (CostModel model : {links_only(), waits, work, rows}) {
    model.hosts = {{0, 2}};
    for (Case c : {ring_all_reduce(4), all_to_all(4), line_broadcast(4, 0, true)})
      for (const uint64_t slices : {1u, 2u, 7u}) {
        c.problem.hosts.assign(4, 0);
        const double all = cost(c, 1 << 16, slices, model);
        for (const double share : {0.001, 0.3, 0.9, 0.999, 1.0, 1.001, 2.0}) {
          const double limit = all * share;
          const double known = simulate(c.problem, c.schedules, 1 << 16, 4, slices, model, limit);
          if (share >= 1)
            EXPECT_EQ(known, all) << share << " in " << slices << " slices";
          else
            EXPECT_GT(known, limit) << share << " in " << slices << " slices";
        }
      }
  }
}

TEST(Simulate, UnmatchedCostsInfinity) {
  Case c = ring_all_reduce(3);
  c.schedules[0].lanes[0].pop_back();
  EXPECT_TRUE(std::isinf(cost(c, 1000, 1, links_only())));
}

}  // namespace
}  // namespace tutti
