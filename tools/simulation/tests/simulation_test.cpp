// SPDX-License-Identifier: Apache-2.0
//
// Hand-written schedules in small networks: what can be computed on paper comes out.
#include "simulation/simulation.hpp"

#include <gtest/gtest.h>

#include <numeric>

#include "schedule_builder.hpp"

namespace tutti::simulation {
namespace {
using namespace hand;

constexpr double latency = 1e-6, per_byte = 1e-9;
constexpr uint64_t block = 1 << 20;

Fabric one_switch(uint32_t nranks) {
  Fabric fabric;
  fabric.nranks = nranks;
  fabric.nic = {latency, 1 / per_byte};
  return fabric;
}

Result simulated(const Case& c, const Fabric& fabric, const Processor& processor = {}, uint64_t bytes = block,
                 uint64_t slices = 1) {
  Schedules schedules(c.problem, {bytes, 4, slices});
  for (const Schedule& schedule : c.schedules) schedules.add(schedule);
  return run(schedules, *make_network(fabric), processor);
}

void expect_seconds(double got, double expected) { EXPECT_NEAR(got, expected, expected * 1e-9); }

TEST(Simulation, RingAllReduce) {
  for (const uint32_t n : {2u, 3u, 8u}) {
    const uint64_t bytes = 4 * 4096 * 8 * n;
    Processor processor;
    processor.reduce_per_byte = per_byte / 3;
    const Result result = simulated(ring_all_reduce(n), one_switch(n), processor, bytes);
    EXPECT_EQ(result.error, "");
    const double part = double(bytes) / n;
    expect_seconds(result.seconds, 2 * (n - 1) * (latency + part * per_byte) + (n - 1) * part * per_byte / 3);
  }
}

// (S+n-2)(a + N/SB): a rank passes a slice on before it takes the next one.
TEST(Simulation, SlicesPipelineALine) {
  constexpr uint32_t n = 5;
  constexpr uint64_t slices = 16;
  const Result result = simulated(line_broadcast(n, 0, true), one_switch(n), {}, block, slices);
  const double slice = double(block) / slices * per_byte;
  // Receives are posted ahead, so the latency of all slices but the first is hidden.
  expect_seconds(result.seconds, (n - 1) * latency + (slices + n - 2) * slice);
}

// A rank sends on fragment by fragment while it receives: a line costs one transfer, and a fragment for each rank on
// the way.
TEST(Simulation, ForwardsFragments) {
  constexpr uint32_t n = 5;
  Processor processor;
  processor.fragment = block / 16;
  const Result result = simulated(line_broadcast(n, 0, true), one_switch(n), processor);
  expect_seconds(result.seconds, (n - 1) * latency + (1 + (n - 2) / 16.0) * block * per_byte);
}

// A reduction overlaps with the arrival of its operand, but for the last fragment.
TEST(Simulation, ReducesWhileBytesArrive) {
  Processor processor;
  processor.reduce_per_byte = per_byte / 2;
  processor.fragment = block / 16;
  Case c = line_reduce(2, 0);
  const double bytes = block * per_byte;
  expect_seconds(simulated(c, one_switch(2), processor).seconds, latency + bytes + bytes / 2 / 16);
  processor.reduce_per_byte = 2 * per_byte;  // slower than the link: from the first fragment on
  expect_seconds(simulated(c, one_switch(2), processor).seconds, latency + bytes / 16 + 2 * bytes);
}

TEST(Simulation, SendsOfARankShareItsCard) {
  constexpr uint32_t n = 5;
  const Result result = simulated(all_to_all(n), one_switch(n));
  expect_seconds(result.seconds, latency + (n - 1) * double(block) * per_byte);
}

TEST(Simulation, MessagesCostTheProcessor) {
  Processor processor;
  processor.message = 1e-4;
  // Sending: a gap for each message; the receiver takes the last one after its own.
  expect_seconds(simulated(line_broadcast(2, 0, true), one_switch(2), processor, 4).seconds,
                 2e-4 + latency + 4 * per_byte);
}

// Each rank exchanges a block with the one `distance` ranks on.
Case exchange(uint32_t nranks, uint32_t distance) {
  Case c = make_case(TUTTI_ALL_TO_ALL, nranks);
  for (uint32_t r = 0; r < nranks; ++r) {
    const uint32_t peer = (r + distance) % nranks, from = (r + nranks - distance) % nranks;
    c.schedules[r].lanes = {{send(peer, in(peer)), recv(from, out(from))}};
  }
  return c;
}

// The ranks of a host share its card; with a card each they do not.
TEST(Simulation, RanksShareTheCardsOfTheirHost) {
  const Case c = exchange(8, 4);
  Fabric fabric = one_switch(8);
  fabric.ranks_per_host = 4;
  fabric.inside = {latency, 1000 / per_byte};
  const double one = block * per_byte;
  expect_seconds(simulated(c, fabric).seconds, latency + 4 * one);
  fabric.nics = 2;
  expect_seconds(simulated(c, fabric).seconds, latency + 2 * one);
  fabric.nics = 4;
  expect_seconds(simulated(c, fabric).seconds, latency + one);
  fabric.cyclic = true;  // even ranks are on a host, odd ones on the other: partners are neighbours
  expect_seconds(simulated(c, fabric).seconds, latency + one / 1000);
}

// Recursive halving and doubling among 2^k ranks, each round's chunks in one message (Rabenseifner):
// 2 log n a + (n-1)/n N (2b + c)
TEST(Simulation, HalvingAndDoubling) {
  constexpr uint32_t n = 16;
  Case c = make_case(TUTTI_ALL_REDUCE, n, true);
  for (uint32_t r = 0; r < n; ++r) {
    c.schedules[r].cuts = equal_cuts(n);
    auto& lane = c.schedules[r].lanes.emplace_back();
    for (uint32_t half = n / 2; half > 0; half /= 2) {  // keeps the half that has chunk r
      const uint32_t peer = r ^ half, kept = r / half * half, given = peer / half * half;
      lane.push_back(send(peer, out(given, half)));
      lane.push_back(recv_reduce(peer, out(kept, half), out(kept, half)));
    }
    for (uint32_t half = 1; half < n; half *= 2) {
      const uint32_t peer = r ^ half;
      lane.push_back(send(peer, out(r / half * half, half)));
      lane.push_back(recv(peer, out(peer / half * half, half)));
    }
  }
  Processor processor;
  processor.reduce_per_byte = per_byte / 3;
  const Result result = simulated(c, one_switch(n), processor, 64 << 20);
  EXPECT_EQ(result.error, "");
  expect_seconds(result.seconds, 8 * latency + 15.0 / 16 * (64 << 20) * per_byte * (2 + 1.0 / 3));
}

// Eight hosts send to the eight of the other half: what goes up from a leaf is `oversubscription` times too much.
TEST(Simulation, OversubscribedTree) {
  const Case c = exchange(16, 8);
  Fabric fabric = one_switch(16);
  fabric.kind = Fabric::Kind::fat_tree;
  for (const double factor : {1.0, 1.5, 2.0, 8.0}) {
    fabric.levels = {{8, factor, latency}, {2, 1, 0}};
    const Result result = simulated(c, fabric);
    expect_seconds(result.seconds, 2 * latency + factor * block * per_byte);
  }
}

TEST(Simulation, DragonflyRoutesAreMinimal) {
  Fabric fabric = one_switch(24);  // 3 groups of 4 routers of 2 hosts
  fabric.kind = Fabric::Kind::dragonfly;
  fabric.hosts_per_router = 2;
  fabric.routers_per_group = 4;
  fabric.local = {10 * latency, 2 / per_byte};
  fabric.global = {100 * latency, 4 / per_byte};
  const auto network = make_network(fabric);
  EXPECT_EQ(network->links(), 24u * 2 + 3 * 16 + 9);
  Route route;
  network->route(0, 1, &route);
  EXPECT_EQ(route.hops, 2u);
  network->route(0, 7, &route);
  EXPECT_EQ(route.hops, 3u);
  EXPECT_NEAR(route.latency, 11 * latency, 1e-12);
  uint32_t longest = 0;
  for (uint32_t a = 0; a < 8; ++a)
    for (uint32_t b = 8; b < 24; ++b) {
      network->route(a, b, &route);
      longest = std::max(longest, route.hops);
      EXPECT_GE(route.latency, 100.99 * latency);
    }
  EXPECT_EQ(longest, 5u);
}

// Every byte that is sent leaves one card and enters another, and no link carries more than it could in the time.
TEST(Simulation, LinksCarryWhatIsSent) {
  constexpr uint32_t n = 9;
  const Fabric fabric = one_switch(n);
  const auto network = make_network(fabric);
  const Result result = simulated(all_to_all(n), fabric);
  EXPECT_EQ(result.messages, n * (n - 1));
  EXPECT_EQ(result.bytes, n * (n - 1) * block);
  for (const LinkClass& of : network->classes()) {
    const auto first = result.link_bytes.begin() + of.first;
    EXPECT_EQ(std::accumulate(first, first + of.links, uint64_t{0}), result.bytes) << of.name;
    EXPECT_LE(double(*std::max_element(first, first + of.links)) * of.per_byte, result.seconds * (1 + 1e-9));
  }
}

// The path's parts add up to the time, and lead from the first step to the last.
TEST(Simulation, CriticalPath) {
  Processor processor{1e-7, per_byte, per_byte, 0};
  const Result result = simulated(ring_all_reduce(6), one_switch(6), processor, 6 << 20);
  double sum = 0, last = 0;
  for (const PathStep& step : result.path) {
    EXPECT_EQ(step.begin, last);
    last = step.end;
    sum += step.latency + step.transfer + step.work + step.waiting;
  }
  EXPECT_EQ(last, result.seconds);
  EXPECT_NEAR(sum, result.seconds, result.seconds * 1e-9);
  EXPECT_EQ(result.path.size(), 2u * 2 * 5);  // both ends of each round's message
}

TEST(Simulation, SaysWhoWaits) {
  Case c = ring_all_reduce(3);
  c.schedules[1].lanes[0].pop_back();
  EXPECT_NE(simulated(c, one_switch(3)).error.find("never ends"), std::string::npos);
  Case uneven = line_broadcast(2, 0, true);
  uneven.schedules[1].lanes[0][0] = signal(0);
  uneven.schedules[1].lanes[0][0].op.flags = TUTTI_STEP_WAIT;
  EXPECT_NE(simulated(uneven, one_switch(2)).error.find("differ in kind or size"), std::string::npos);
}

TEST(Simulation, RefusesWhatDoesNotFit) {
  const Case c = ring_all_reduce(3);
  Schedules schedules(c.problem, {block, 4, 1, 64});
  EXPECT_THROW(schedules.add(c.schedules[0]), std::runtime_error);
}

// A step waits for the steps of its lane that touch the same memory, and for its dependency, and for nothing else.
TEST(Simulation, OrderWithinARank) {
  Case c = make_case(TUTTI_ALL_GATHER, 3);
  Processor processor;
  processor.copy_per_byte = per_byte;
  c.schedules[0].lanes = {{send(1, in(0)), copy(out(0), in(0))}};
  c.schedules[1].lanes = {{recv(0, out(0)), send(2, out(0))}, {after(copy(out(1), in(0)), 0, 1)}};
  c.schedules[2].lanes = {{recv(1, out(0)), copy(out(2), in(0))}};
  const double one = block * per_byte;
  const Result result = simulated(c, one_switch(3), processor);
  EXPECT_EQ(result.error, "");
  expect_seconds(result.rank_seconds[0], one);                // the copy beside the transfer
  expect_seconds(result.rank_seconds[1], latency + 3 * one);  // received, sent on, then copied
  expect_seconds(result.rank_seconds[2], 2 * (latency + one));
}

TEST(Simulation, StepTimes) {
  Case c = line_broadcast(3, 0, true);
  StepTimes times = step_times(c.problem, c.schedules, 1000, 4);
  ASSERT_EQ(times.size(), 3u);
  EXPECT_EQ(times[1][0][1].partner_step, 0u);
  EXPECT_LT(times[1][0][0].end, times[1][0][1].end);
  EXPECT_LT(times[1][0][1].end, times[2][0][0].end);
  c.schedules[0].lanes[0].pop_back();
  EXPECT_TRUE(step_times(c.problem, c.schedules, 1000, 4).empty());
}

// Two messages share a link while both are there: the short one takes twice its time, the long one gets the rest.
TEST(Simulation, MessagesShareALink) {
  Case c = make_case(TUTTI_GATHER, 3);
  c.schedules[0].cuts = c.schedules[1].cuts = c.schedules[2].cuts = {{1, 4}};
  c.schedules[0].lanes = {{recv(1, out(2)), recv(2, out(5))}};
  c.schedules[1].lanes = {{send(0, in(0))}};  // a quarter of a block
  c.schedules[2].lanes = {{send(0, in(1))}};  // three quarters
  const Result result = simulated(c, one_switch(3));
  EXPECT_EQ(result.error, "");
  const double one = block * per_byte;
  expect_seconds(result.rank_seconds[1], one / 2);
  expect_seconds(result.rank_seconds[2], one);
}

}  // namespace
}  // namespace tutti::simulation
