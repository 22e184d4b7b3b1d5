// SPDX-License-Identifier: Apache-2.0
//
// Calls on host memory and in streams are planned alike, and every algorithm is proved once where proofs are asked for.
#include "engine/plan/planner.hpp"

#include <gtest/gtest.h>

#include "base/failure.hpp"

namespace tutti::core {
namespace {

constexpr uint32_t nranks = 4;

// The root sends its block to each rank, or to all but the last.
struct Star {
  bool leaves_out_the_last = false;
  int asked = 0;  // for schedules
  tutti_algorithm table{};

  Star() {
    table.struct_size = sizeof table;
    table.self = this;
    table.name = "star";
    table.collectives = uint64_t{1} << TUTTI_BROADCAST;
    table.supports = [](void*, const tutti_query*) -> tutti_status { return TUTTI_OK; };
    table.schedule = [](void* self, const tutti_query* q, const tutti_schedule_sink* sink) -> tutti_status {
      Star& star = *static_cast<Star*>(self);
      ++star.asked;
      const uint32_t end = q->nranks - (star.leaves_out_the_last ? 1 : 0);
      const bool root = q->rank == q->root, in_place = q->flags & TUTTI_QUERY_IN_PLACE;
      tutti_step step{};
      step.dependency_lane = TUTTI_NO_DEPENDENCY;
      (root ? step.src : step.dst) = {root ? uint32_t{TUTTI_BUFFER_IN} : uint32_t{TUTTI_BUFFER_OUT}, 0, 1, 0};
      step.kind = root ? TUTTI_STEP_SEND : TUTTI_STEP_RECV;
      for (step.peer = 0; step.peer < q->nranks; ++step.peer)
        if (root ? step.peer != q->root && step.peer < end : step.peer == q->root && q->rank < end)
          if (const tutti_status status = sink->add_step(sink->self, 0, &step, nullptr); status < 0) return status;
      step.kind = TUTTI_STEP_COPY;
      step.peer = 0;
      step.dst = {TUTTI_BUFFER_OUT, 0, 1, 0};
      return root && !in_place ? sink->add_step(sink->self, 0, &step, nullptr) : tutti_status{TUTTI_OK};
    };
  }
};

// Rank 1 of four on a host.
struct Rank {
  Star star;
  Topology topology;
  std::vector<Link> links{nranks};
  tutti_transport transport{};
  Port port;
  UserOperators operators;
  std::unique_ptr<Selector> selector;
  Planner planner;

  explicit Rank(bool verifies) {
    std::vector<RankDescription> ranks(nranks);
    transport.name = "net";
    port.api = &transport;
    for (uint32_t r = 0; r < nranks; ++r) {
      ranks[r].host = "a";
      ranks[r].process = r + 1;
      ranks[r].transports = {{"net", "1", TUTTI_REACH_HOST, "", 64 << 10, 1000, 10'000'000'000}};
      links[r].peer = r;
      links[r].port = &port;
    }
    topology = Topology(std::move(ranks));
    selector =
        std::make_unique<Selector>(topology, AlgorithmFilter(""), std::vector{&std::as_const(star.table)}, 2, 1 << 20);
    planner = {1, nranks, verifies, selector.get(), &links, &operators};
  }
  Plan on_host(const Shape& shape) {
    Schedule schedule;
    return planner.plan(shape, false, 0, schedule);
  }
  Plan in_stream(const Shape& shape) {
    Schedule schedule;
    Plan plan = planner.plan(shape, true, 0, schedule);
    EXPECT_TRUE(schedule.has_levels()) << "the algorithm gives none";
    return plan;
  }
  // How often the algorithm was asked for a schedule for a plan.
  int asked(const Shape& shape, bool on_device) {
    const int before = star.asked;
    on_device ? in_stream(shape) : on_host(shape);
    return star.asked - before;
  }
};

Shape broadcast(uint64_t count, uint32_t dtype = TUTTI_FLOAT32, uint32_t in_place = 0) {
  return {count, TUTTI_BROADCAST, dtype, 0, 0, in_place};
}

TEST(Planner, HostAndStreamsRunOneSchedule) {
  Rank rank(false);
  const Plan host = rank.on_host(broadcast(1000)), stream = rank.in_stream(broadcast(1000));
  EXPECT_STREQ(stream.algorithm, "star");
  EXPECT_EQ(stream.schedule_hash, host.schedule_hash) << "levels that were computed are none of the algorithm's";
  EXPECT_NE(stream.common_hash, host.common_hash) << "a rank with host memory goes with none on a device";
  Schedule own;
  std::string error;
  const Problem problem = rank.selector->problem(rank.star.table, broadcast(1000));
  ASSERT_EQ(build_schedule(rank.star.table, make_query(problem, 1), &own, &error), TUTTI_OK) << error;
  EXPECT_EQ(host.schedule_hash, schedule_hash(own));
}

TEST(Planner, AProofIsMadeOnce) {
  Rank proved(true), plain(false);
  (void)proved.on_host(broadcast(1000));
  (void)plain.on_host(broadcast(1000));
  EXPECT_GT(proved.star.asked, plain.star.asked) << "there was no proof";
  // In streams, in place, of another type and another size of the class.
  for (const Shape& shape :
       {broadcast(1000), broadcast(1000, TUTTI_FLOAT32, 1), broadcast(1000, TUTTI_INT32), broadcast(1023)})
    for (const bool on_device : {false, true})
      EXPECT_EQ(proved.asked(shape, on_device), plain.asked(shape, on_device)) << "proved again";
  EXPECT_GT(proved.asked(broadcast(1024), true), plain.asked(broadcast(1024), true)) << "another class, another query";
}

TEST(Planner, AWrongAlgorithmIsRefusedEverywhere) {
  Rank rank(true);
  rank.star.leaves_out_the_last = true;
  const auto refusal = [&](bool on_device) {
    try {
      on_device ? rank.in_stream(broadcast(1000)) : rank.on_host(broadcast(1000));
    } catch (const Failure& failure) {
      EXPECT_EQ(failure.status, TUTTI_INTERNAL);
      return failure.text;
    }
    return std::string("planned");
  };
  const Problem problem = rank.selector->problem(rank.star.table, broadcast(1000));
  const std::string words =
      "TUTTI_VERIFY: algorithm star is wrong: " + verify_algorithm(rank.star.table, problem).error;
  EXPECT_EQ(refusal(false), words);
  EXPECT_EQ(refusal(true), words);
  EXPECT_EQ(refusal(true), words) << "what is wrong is not kept as proved";
}

}  // namespace
}  // namespace tutti::core
