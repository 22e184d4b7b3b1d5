// SPDX-License-Identifier: Apache-2.0
//
// Judging that is left out: calls that another rank of the process has judged, and algorithms that cannot be the best.
#include "engine/choose/judgements.hpp"

#include <gtest/gtest.h>
#include <tutti/registry.h>

#include <atomic>
#include <stdexcept>
#include <string>
#include <thread>
#include <tutti/base/bits.hpp>

#include "engine/choose/selector.hpp"

namespace tutti::core {
namespace {

// Near and far in nanoseconds and bytes per second.
constexpr uint64_t near_latency = 100, near_bandwidth = uint64_t{10} << 30;
constexpr uint64_t far_latency = 9000, far_bandwidth = uint64_t{2} << 30;

Topology ranks_on_hosts(uint32_t nranks, uint32_t hosts, uint32_t cores) {
  std::vector<RankDescription> ranks(nranks);
  for (uint32_t r = 0; r < nranks; ++r) {
    ranks[r].host = std::to_string(r % hosts);
    ranks[r].process = r + 1;
    ranks[r].cores = cores;
    ranks[r].transports = {{"near", "1", TUTTI_REACH_HOST, "", 64 << 10, near_latency, near_bandwidth},
                           {"far", "1", TUTTI_REACH_NETWORK, "", 256 << 10, far_latency, far_bandwidth}};
  }
  return Topology(ranks);
}

Shape shape_of(uint32_t collective, uint64_t bytes) {
  Shape shape;
  shape.collective = collective;
  shape.count = bytes / 4;
  shape.dtype = TUTTI_FLOAT32;
  shape.op = is_reducing(collective) ? TUTTI_SUM : 0;
  return shape;
}

// A broadcast in which the root sends the block to each rank so often, on lanes of their own; counts its schedules.
struct CountedStar {
  tutti_algorithm table{};
  uint32_t times;
  uint32_t made = 0;
  CountedStar(const char* name, uint32_t often) : times(often) {
    table.struct_size = sizeof table;
    table.self = this;
    table.name = name;
    table.collectives = uint64_t{1} << TUTTI_BROADCAST;
    table.supports = [](void*, const tutti_query*) -> tutti_status { return TUTTI_OK; };
    table.schedule = [](void* self, const tutti_query* q, const tutti_schedule_sink* sink) -> tutti_status {
      CountedStar& star = *static_cast<CountedStar*>(self);
      ++star.made;
      const bool sends = q->rank == q->root;
      tutti_step step{};
      step.kind = sends ? TUTTI_STEP_SEND : TUTTI_STEP_RECV;
      step.dependency_lane = TUTTI_NO_DEPENDENCY;
      (sends ? step.src : step.dst) = {sends ? uint32_t{TUTTI_BUFFER_IN} : uint32_t{TUTTI_BUFFER_OUT}, 0, 1, 0};
      for (uint32_t time = 0; time < star.times; ++time)
        for (uint32_t peer = 0; peer < q->nranks; ++peer) {
          if (peer == q->root || (!sends && peer != q->rank)) continue;
          step.peer = sends ? peer : q->root;
          if (const tutti_status status = sink->add_step(sink->self, 0, &step, nullptr); status < 0) return status;
        }
      return TUTTI_OK;
    };
  }
};

TEST(Judgements, RanksOfACommunicatorJudgeOnce) {
  const Topology topology = ranks_on_hosts(4, 1, 2);
  CountedStar star("star", 1);
  const auto make = [&](uint64_t communicator) {
    return std::make_unique<Selector>(topology, AlgorithmFilter(""), std::vector{&std::as_const(star.table)}, 2,
                                      1 << 20, SelectorSettings{.communicator = communicator});
  };
  const auto judges = [&](Selector& selector, uint64_t bytes) {
    const uint32_t before = star.made;
    EXPECT_EQ(selector.choose(shape_of(TUTTI_BROADCAST, bytes), false).algorithm, &star.table);
    return star.made > before;
  };
  auto first = make(7), second = make(7), another = make(8), alone = make(0);
  EXPECT_TRUE(judges(*first, 64));
  EXPECT_FALSE(judges(*second, 64));
  EXPECT_FALSE(judges(*second, 100)) << "of the same size class";
  EXPECT_TRUE(judges(*second, 128)) << "of another one";
  EXPECT_FALSE(judges(*first, 128));
  EXPECT_TRUE(judges(*another, 64));
  EXPECT_TRUE(judges(*alone, 64));
  EXPECT_TRUE(judges(*make(0), 64)) << "0 is no communicator's number";
  first.reset();
  EXPECT_FALSE(judges(*make(7), 64));
  second.reset();
  EXPECT_TRUE(judges(*make(7), 64)) << "nobody had them any more";
}

TEST(Judgements, OfRanksThatAskAtOnceOneJudges) {
  constexpr uint32_t threads = 8, keys = 50;
  const auto held = Judgements::of(99);
  std::atomic<uint32_t> made{0}, right{0};
  std::vector<std::thread> ranks;
  for (uint32_t t = 0; t < threads; ++t)
    ranks.emplace_back([&] {
      const auto judgements = Judgements::of(99);
      for (uint32_t key = 0; key < keys; ++key) {
        const auto& found = judgements->find({key, 0, 0, 0, false, Order::free, false, false, 0}, [&] {
          ++made;
          return std::vector<Candidate>(key);
        });
        right += found.size() == key;
      }
    });
  for (std::thread& rank : ranks) rank.join();
  EXPECT_EQ(made, keys);
  EXPECT_EQ(right, threads * keys);
}

TEST(Judgements, OnesThatFailAreMadeAgain) {
  const auto judgements = Judgements::of(0);
  const Judgements::Key key{1, 0, 0, 0, false, Order::free, false, false, 0};
  EXPECT_THROW(judgements->find(key, []() -> std::vector<Candidate> { throw std::runtime_error("no memory"); }),
               std::runtime_error);
  EXPECT_EQ(judgements->find(key, [] { return std::vector<Candidate>(3); }).size(), 3u);
}

// All ranks' schedules are made for those that may be the best; the others show by those of four ranks that they cannot.
TEST(Judgements, WhatCannotBeTheBestIsNotSimulated) {
  const Topology topology = ranks_on_hosts(16, 1, 2);
  CountedStar once("once", 1), often("often", 1000);
  Selector selector(topology, AlgorithmFilter(""), {&often.table, &once.table}, 2, 1 << 20);
  const Shape shape = shape_of(TUTTI_BROADCAST, 1024);
  EXPECT_EQ(selector.choose(shape, false).algorithm, &once.table);
  EXPECT_EQ(once.made, 4u + 16 + 5) << "four, then all out of place, and five in place";
  EXPECT_EQ(often.made, 4u);
  EXPECT_EQ(selector.candidates(shape, false).size(), 2u);
  EXPECT_EQ(often.made, 4u + 4 + 16 + 5) << "all times are wanted";
}

// The choice among the algorithms that there are is the one of which all times are known.
TEST(Judgements, TheChoiceIsThatOfAllTimes) {
  size_t calls = 0;
  for (const uint32_t nranks : {3u, 9u, 20u})
    for (const auto& [hosts, cores] : {std::pair{1u, 2u}, {1u, 64u}, {2u, 2u}}) {
      const Topology topology = ranks_on_hosts(nranks, hosts, cores);
      Selector selector(topology, AlgorithmFilter(""), list_algorithms(), 8, uint64_t{1} << 30);
      for (uint32_t collective = 1; collective <= last_collective; ++collective)
        for (const uint64_t bytes : {4u, 4096u, 1u << 20}) {
          const Shape shape = shape_of(collective, bytes);
          const std::vector<Candidate> all = selector.candidates(shape, false);
          if (all.empty() || !all.front().reason.empty()) continue;
          ++calls;
          const Candidate chosen = selector.choose(shape, false);
          EXPECT_STREQ(chosen.name(), all.front().name()) << collective_name(collective) << " of " << bytes << " bytes, "
                                                          << nranks << " ranks on " << hosts << " hosts";
          EXPECT_EQ(chosen.slices, all.front().slices);
          EXPECT_DOUBLE_EQ(chosen.seconds, all.front().seconds);
        }
    }
  EXPECT_GT(calls, 200u);
}

}  // namespace
}  // namespace tutti::core
