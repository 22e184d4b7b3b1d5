// SPDX-License-Identifier: Apache-2.0
//
// The query that an algorithm is asked, and choices that follow its answers.
#include "engine/choose/selector.hpp"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/failure.hpp"
#include "engine/plan/plan.hpp"

namespace tutti::core {
namespace {

// Four ranks, two on each host or all on one; ranks 0 and 1 are threads of one process.
Topology four_ranks(bool one_host = false, uint32_t cores = 1) {
  std::vector<RankDescription> ranks(4);
  for (uint32_t r = 0; r < 4; ++r) {
    ranks[r].host = r < 2 || one_host ? "a" : "b";
    ranks[r].process = r ? r : 1;
    ranks[r].cores = cores;
    TransportOffer offer;
    offer.name = "net";
    offer.reach = TUTTI_REACH_NETWORK;
    offer.fragment_bytes = 64 << 10;
    offer.latency_ns = 5000;
    offer.bandwidth = 10'000'000'000;
    ranks[r].transports = {offer};
  }
  return Topology(ranks);
}

// Serves blocks below 64 KiB, and writes down what it is asked.
struct Asked {
  tutti_algorithm table{};
  tutti_query last{};
  std::string parameters;
  uint32_t lane = 0;    // of its steps
  bool copies = false;  // its root copies the block, in lane 1, before it sends
  Asked(const char* name, bool small) {
    table.struct_size = sizeof table;
    table.self = this;
    table.name = name;
    table.collectives = uint64_t{1} << TUTTI_BARRIER | uint64_t{1} << TUTTI_BROADCAST;
    table.supports = small ? refuse_large : take_all;
    table.schedule = [](void* self, const tutti_query* q, const tutti_schedule_sink* sink) -> tutti_status {
      tutti_step step{};
      step.kind = q->rank == q->root ? TUTTI_STEP_SEND : TUTTI_STEP_RECV;
      step.dependency_lane = TUTTI_NO_DEPENDENCY;
      const tutti_span whole{q->rank == q->root ? uint32_t{TUTTI_BUFFER_IN} : uint32_t{TUTTI_BUFFER_OUT}, 0, 1, 0};
      const auto& asked = *static_cast<Asked*>(self);
      if (asked.copies && q->rank == q->root) {
        tutti_step copy{};
        copy.kind = TUTTI_STEP_COPY;
        copy.dependency_lane = TUTTI_NO_DEPENDENCY;
        copy.src = whole;
        copy.dst = {TUTTI_BUFFER_OUT, 0, 1, 0};
        if (const tutti_status status = sink->add_step(sink->self, 1, &copy, nullptr); status < 0)
          return status;
        step.dependency_lane = 1;
        step.dependency_step = 0;
      }
      (q->rank == q->root ? step.src : step.dst) = whole;
      for (uint32_t peer = 0; peer < q->nranks; ++peer) {
        step.peer = q->rank == q->root ? peer : q->root;
        if (peer == (q->rank == q->root ? q->rank : q->root) || (q->rank != q->root && peer != q->rank)) continue;
        if (const tutti_status status = sink->add_step(sink->self, asked.lane, &step, nullptr); status < 0)
          return status;
      }
      return TUTTI_OK;
    };
  }
  static tutti_status take_all(void* self, const tutti_query* query) {
    auto& asked = *static_cast<Asked*>(self);
    asked.last = *query;
    asked.parameters = query->parameters ? query->parameters : "(none)";
    return TUTTI_OK;
  }
  static tutti_status refuse_large(void* self, const tutti_query* query) {
    take_all(self, query);
    return query->block_bytes < 64 << 10 ? TUTTI_OK : TUTTI_NOT_SUPPORTED;
  }
};

TEST(Selector, AlgorithmsMayLookAtTheSizeClass) {
  const Topology topology = four_ranks();
  Asked small("small", true), any("any", false);
  Selector selector(topology, AlgorithmFilter(""), {&small.table, &any.table}, 2, 1 << 20);
  const auto broadcast = [](uint64_t count) {
    Shape shape;
    shape.collective = TUTTI_BROADCAST;
    shape.count = count;
    shape.dtype = TUTTI_FLOAT32;
    return shape;
  };
  EXPECT_EQ(selector.choose(broadcast(1000), false).algorithm, &small.table);
  EXPECT_EQ(small.last.block_bytes, 4095u);
  EXPECT_EQ(selector.choose(broadcast(16384), false).algorithm, &any.table);
  EXPECT_EQ(any.last.block_bytes, (128u << 10) - 1);
  for (const uint64_t bytes : {0u, 1u, 2u, 3u, 4u, 4096u, 8191u}) {
    const uint64_t of_class = selector.problem(any.table, {bytes, TUTTI_BROADCAST}).block_bytes;
    EXPECT_GE(of_class, bytes);
    EXPECT_EQ(selector.problem(any.table, {of_class, TUTTI_BROADCAST}).block_bytes, of_class);
    EXPECT_TRUE(of_class < 2 * bytes || bytes == 0);
  }
}

// On one host fewer lanes, between hosts more if each rank has a core.
TEST(Selector, LanesDecideWhereTheTimesAreAlike) {
  for (const bool one_host : {false, true})
    for (const uint32_t cores : {1, 2}) {
      const Topology topology = four_ranks(one_host, cores);
      Asked two("two", false), one("one", false);
      two.lane = 1;
      Shape shape;
      shape.collective = TUTTI_BROADCAST;
      shape.count = 1000;
      shape.dtype = TUTTI_FLOAT32;
      for (const bool turned : {false, true}) {
        std::vector<const tutti_algorithm*> both{&two.table, &one.table};
        if (turned) std::ranges::reverse(both);
        Selector selector(topology, AlgorithmFilter(""), both, 2, 1 << 20);
        const std::vector<Candidate> all = selector.candidates(shape, false);
        EXPECT_DOUBLE_EQ(all[0].seconds, all[1].seconds);
        EXPECT_EQ(selector.choose(shape, false).algorithm, one_host || cores < 2 ? &one.table : &two.table);
      }
    }
}

TEST(Selector, OnOneHostTimesWithinFivePercentAreAlike) {
  for (const bool one_host : {false, true}) {
    const Topology topology = four_ranks(one_host, 4);
    Asked quick("quick", false), copying("copying", false);
    quick.lane = 2;
    copying.copies = true;
    Shape shape;
    shape.collective = TUTTI_BROADCAST;
    shape.count = 1024;
    shape.dtype = TUTTI_FLOAT32;
    Selector selector(topology, AlgorithmFilter(""), {&quick.table, &copying.table}, 3, 1 << 20);
    const std::vector<Candidate> all = selector.candidates(shape, false);
    const double ratio = one_host ? all[0].seconds / all[1].seconds : all[1].seconds / all[0].seconds;
    EXPECT_GT(ratio, 1.01);
    EXPECT_LT(ratio, 1.05);
    EXPECT_EQ(selector.choose(shape, false).algorithm, one_host ? &copying.table : &quick.table);
    const std::string why = selector.why(all[0], all), lowest = "chosen: the lowest predicted time";
    EXPECT_EQ(why, one_host ? fmt::format("{} within {:.0f} %", lowest, std::ceil(100 * (ratio - 1))) : lowest);
  }
}

TEST(Selector, AlgorithmsMayLookAtTheTopology) {
  const Topology topology = four_ranks();
  Asked any("any", false);
  Selector selector(topology, AlgorithmFilter(""), {&any.table}, 2, 1 << 20);
  Shape shape;
  shape.collective = TUTTI_BROADCAST;
  shape.count = 1000;
  shape.dtype = TUTTI_FLOAT32;
  selector.choose(shape, false);
  const tutti_topology* known = any.last.topology;
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->struct_size, sizeof *known);
  ASSERT_EQ(known->nranks, 4u);
  EXPECT_EQ(std::vector<uint32_t>(known->host_of_rank, known->host_of_rank + 4), (std::vector<uint32_t>{0, 0, 1, 1}));
  EXPECT_EQ(std::vector<uint32_t>(known->process_of_rank, known->process_of_rank + 4),
            (std::vector<uint32_t>{0, 0, 1, 2}));
  tutti_link_figures figures{};
  ASSERT_EQ(known->link(known->self, 0, 3, &figures), TUTTI_OK);
  EXPECT_EQ(figures.latency_ns, 5000u);
  EXPECT_EQ(figures.bytes_per_second, 10'000'000'000u);
  EXPECT_LT(known->link(known->self, 0, 4, &figures), 0);
  EXPECT_LT(known->link(known->self, 2, 2, &figures), 0);
}

// Eight ranks on one host, each with a device: the root sends to all in one message each, or along a chain.
Topology devices_of_a_host(uint64_t latency_ns, uint64_t bandwidth, uint32_t maps = 1) {
  std::vector<RankDescription> ranks(8);
  for (uint32_t r = 0; r < 8; ++r) {
    ranks[r].host = "a";
    ranks[r].process = r + 1;
    ranks[r].cores = 8;
    ranks[r].device = {"fast", r, std::to_string(r), "", -1, latency_ns, bandwidth, bandwidth / 4};
    ranks[r].transports = {{"slow", "1", TUTTI_REACH_HOST, "", 64 << 10, 50'000, 1'000'000'000, {}, maps}};
  }
  return Topology(ranks);
}

TEST(Selector, DeviceCallsCostWhatDevicesLinksDo) {
  const Topology topology = devices_of_a_host(2000, 100'000'000'000);
  Asked star("star", false);
  Selector selector(topology, AlgorithmFilter(""), {&star.table}, 2, 1 << 20);
  Shape shape;
  shape.collective = TUTTI_BROADCAST;
  shape.count = 1 << 25;  // one choice serves a power of two and up to twice as many
  shape.dtype = TUTTI_FLOAT32;
  const double on_host = selector.candidates(shape, false)[0].seconds;
  EXPECT_GT(on_host, 0.9) << "seven times 134 MB at 1 GB/s";
  const double mapped = selector.candidates(shape, true)[0].seconds;
  EXPECT_GT(mapped, 7 * 1.34e-3);
  EXPECT_LT(mapped, 7 * 1.34e-3 * 1.2) << "seven times 134 MB at 100 GB/s";
  const Topology apart = devices_of_a_host(2000, 100'000'000'000, 0);
  const Selector staged(apart, AlgorithmFilter(""), {&star.table}, 2, 1 << 20);
  EXPECT_GE(staged.candidates(shape, true)[0].seconds, on_host) << "the transport carries it between slots";
  // Small ones: the streams' commands, one after the other.
  shape.count = 1;
  EXPECT_GE(selector.candidates(shape, true)[0].seconds, 7 * 2000e-9);
  EXPECT_LT(selector.candidates(shape, true)[0].seconds, 50'000e-9);
}

TEST(AlgorithmFilter, WhatItRefuses) {
  for (const char* wrong : {"barrier:no-such-algorithm:4", "barrier:", "barrier", "barrier:^"})
    EXPECT_THROW(AlgorithmFilter{wrong}, Failure) << wrong;
  for (const char* wrong : {"no-such-algorithm:4", "^no-such-algorithm", "", "^", ",", "barrier:^"})
    EXPECT_THROW(AlgorithmFilter("barrier", wrong), Failure) << wrong;
}

TEST(Selector, ACallWithoutAlgorithmsHasTheCommunicators) {
  const Topology topology = four_ranks();
  Asked any("any", false);
  Selector selector(topology, AlgorithmFilter(""), {&any.table}, 2, 1 << 20);
  EXPECT_EQ(selector.algorithms_of_call("barrier", nullptr), 0u);
  EXPECT_EQ(selector.algorithms_of_call("barrier", ""), 0u);
  EXPECT_THROW(selector.algorithms_of_call("barrier", "no-such-algorithm"), Failure);
}

}  // namespace
}  // namespace tutti::core
