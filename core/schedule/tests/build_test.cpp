// SPDX-License-Identifier: Apache-2.0
//
// An algorithm's output is not trusted: each kind of misbehaviour is an error with a text, never a crash.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <cstring>
#include <functional>

#include "schedule_builder.hpp"

namespace tutti {
namespace {
using namespace hand;
using Emit = std::function<tutti_status(const tutti_query&, const tutti_schedule_sink&)>;

// An algorithm written against the raw ABI, whose schedule() is a lambda.
struct RawAlgorithm {
  explicit RawAlgorithm(Emit given) : emit(std::move(given)) {
    table.struct_size = sizeof table;
    table.self = this;
    table.name = "raw";
    table.collectives = ~uint64_t{0};
    table.supports = [](void* self, const tutti_query*) { return static_cast<RawAlgorithm*>(self)->supported; };
    table.schedule = [](void* self, const tutti_query* query, const tutti_schedule_sink* sink) {
      return static_cast<RawAlgorithm*>(self)->emit(*query, *sink);
    };
  }
  Emit emit;
  tutti_status supported = TUTTI_OK;
  tutti_algorithm table{};
};

tutti_status emit(const tutti_schedule_sink& sink, uint32_t lane, const Step& step) {
  return sink.add_step(sink.self, lane, &step.op, step.sources.empty() ? nullptr : step.sources.data());
}

// Hands over hand-made schedules, as an algorithm would.
Emit emits(std::function<Case(bool in_place)> make) {
  return [make](const tutti_query& q, const tutti_schedule_sink& sink) {
    const Case c = make((q.flags & TUTTI_QUERY_IN_PLACE) != 0);
    const Schedule& s = c.schedules[q.rank];
    if (!s.cuts.empty()) sink.set_cuts(sink.self, s.cuts.data(), uint32_t(s.cuts.size()));
    if (!s.scratch.empty()) sink.set_scratch(sink.self, s.scratch.data(), uint32_t(s.scratch.size()), s.scratch_copies);
    sink.set_flags(sink.self, s.flags);
    for (uint32_t lane = 0; lane < s.lanes.size(); ++lane)
      for (const Step& step : s.lanes[lane])
        if (const tutti_status status = emit(sink, lane, step); status != TUTTI_OK) return status;
    return tutti_status{TUTTI_OK};
  };
}

Problem two_ranks(uint32_t collective = TUTTI_ALL_REDUCE) {
  Problem problem;
  problem.collective = collective;
  problem.nranks = 2;
  return problem;
}

void expect_refused(const Emit& emit, tutti_status status, const char* words) {
  RawAlgorithm raw(emit);
  const Problem problem = two_ranks();
  Schedule schedule;
  std::string error;
  EXPECT_EQ(build_schedule(raw.table, make_query(problem, 1), &schedule, &error), status);
  EXPECT_NE(error.find(words), std::string::npos) << error;
  EXPECT_NE(error.find("raw"), std::string::npos) << error;
  EXPECT_TRUE(schedule.lanes.empty());
}

TEST(Build, TakesWhatIsRight) {
  RawAlgorithm raw(emits([](bool in_place) { return direct_all_reduce(2, in_place, 2); }));
  std::vector<Schedule> schedules;
  std::string error;
  ASSERT_EQ(build_schedules(raw.table, two_ranks(), &schedules, &error), TUTTI_OK) << error;
  ASSERT_EQ(schedules.size(), 2u);
  EXPECT_TRUE(schedules[1].sliced());
  EXPECT_EQ(schedules[1].scratch_copies, 2u);
  EXPECT_EQ(schedules[1].lanes[0].back().sources.size(), 2u);
  EXPECT_TRUE(verify_algorithm(raw.table, two_ranks()).ok());
}

TEST(Build, MisbehaviourIsToldFromTheSink) {
  const Step copying = copy(out(0), in(0), TUTTI_STEP_LOAD);
  expect_refused([&](const tutti_query&, const tutti_schedule_sink& s) { return emit(s, 8, copying); }, TUTTI_INTERNAL,
                 "a step for lane 8, but the query allows 8");
  expect_refused(
      [&](const tutti_query&, const tutti_schedule_sink& s) { return s.add_step(s.self, 0, nullptr, nullptr); },
      TUTTI_INTERNAL, "no step");
  expect_refused(
      [&](const tutti_query&, const tutti_schedule_sink& s) {
        const Step sum = reduce(out(0), {in(0), in(0)});
        return s.add_step(s.self, 0, &sum.op, nullptr);
      },
      TUTTI_INTERNAL, "without its sources");
  expect_refused(
      [&](const tutti_query&, const tutti_schedule_sink& s) {
        Step sum = reduce(out(0), {in(0), in(0)});
        sum.op.sources = 0xffffffffu;
        return emit(s, 0, sum);
      },
      TUTTI_INTERNAL, "more reduce sources than the limit");
  expect_refused(
      [&](const tutti_query&, const tutti_schedule_sink& s) {
        emit(s, 0, copying);
        return s.set_flags(s.self, 0);
      },
      TUTTI_INTERNAL, "after the first step");
  expect_refused(
      [&](const tutti_query&, const tutti_schedule_sink& s) {
        s.set_flags(s.self, 0);
        return s.set_flags(s.self, 0);
      },
      TUTTI_INTERNAL, "called twice");
  expect_refused([&](const tutti_query&, const tutti_schedule_sink& s) { return s.set_cuts(s.self, nullptr, 3); },
                 TUTTI_INTERNAL, "no cut points");
  expect_refused(
      [&](const tutti_query&, const tutti_schedule_sink& s) { return s.set_cuts(s.self, nullptr, 0xffffffffu); },
      TUTTI_INTERNAL, "limit of 1048576");
  expect_refused(
      [&](const tutti_query&, const tutti_schedule_sink& s) { return s.set_scratch(s.self, nullptr, 0xffffffffu, 0); },
      TUTTI_INTERNAL, "limit of 1048576");
  const tutti_extent extent{0, 0};
  expect_refused(
      [&](const tutti_query&, const tutti_schedule_sink& s) { return s.set_scratch(s.self, &extent, 1, 17); },
      TUTTI_INTERNAL, "scratch copies");
}

TEST(Build, ARefusalIsNotForgotten) {
  // It goes on and says that all is well.
  expect_refused(
      [](const tutti_query&, const tutti_schedule_sink& s) {
        emit(s, 99, nop());
        emit(s, 0, nop());
        return tutti_status{TUTTI_OK};
      },
      TUTTI_INTERNAL, "lane 99");
}

TEST(Build, EndlessSchedulesEnd) {
  expect_refused(
      [](const tutti_query&, const tutti_schedule_sink& s) {
        const Step step = nop();
        tutti_status status = TUTTI_OK;
        while (status == TUTTI_OK) status = emit(s, 0, step);
        return status;
      },
      TUTTI_INTERNAL, "more steps than the limit");
}

TEST(Build, FormIsChecked) {
  expect_refused([](const tutti_query&, const tutti_schedule_sink& s) { return emit(s, 0, send(2, in(0))); },
                 TUTTI_INTERNAL, "rank 1 lane 0 step 0 (send to 2: in[0]): names peer 2, but there are 2 ranks");
  expect_refused([](const tutti_query&, const tutti_schedule_sink& s) { return emit(s, 0, copy(in(0), out(0))); },
                 TUTTI_INTERNAL, "writes IN");
}

TEST(Build, StatusesComeThrough) {
  expect_refused([](const tutti_query&, const tutti_schedule_sink&) { return tutti_status{TUTTI_NO_RESOURCES}; },
                 TUTTI_NO_RESOURCES, "status -4");
  expect_refused([](const tutti_query&, const tutti_schedule_sink&) { return tutti_status{TUTTI_AGAIN}; },
                 TUTTI_INTERNAL, "status 1");
  RawAlgorithm raw(emits([](bool) { return ring_all_reduce(2); }));
  Schedule schedule;
  std::string error;
  const Problem problem = two_ranks();
  tutti_query query = make_query(problem, 0);
  raw.supported = TUTTI_NOT_SUPPORTED;
  EXPECT_EQ(build_schedule(raw.table, query, &schedule, &error), TUTTI_NOT_SUPPORTED);
  raw.supported = TUTTI_OK;
  raw.table.collectives = 1u << TUTTI_BARRIER;
  EXPECT_EQ(build_schedule(raw.table, query, &schedule, &error), TUTTI_NOT_SUPPORTED);
  raw.table.collectives = ~uint64_t{0};
  query.rank = 2;
  EXPECT_EQ(build_schedule(raw.table, query, &schedule, &error), TUTTI_INVALID_ARGUMENT);
  query.rank = 0;
  raw.table.schedule = nullptr;
  EXPECT_EQ(build_schedule(raw.table, query, &schedule, &error), TUTTI_INTERNAL);
  EXPECT_EQ(build_schedule(raw.table, query, &schedule, nullptr), TUTTI_INTERNAL);
}

TEST(VerifyAlgorithm, InPlaceMustExchangeTheSame) {
  // Right in both forms, but in place it sends the halves in the other order.
  RawAlgorithm raw(emits([](bool in_place) {
    Case c = make_case(TUTTI_ALL_GATHER, 2);
    for (uint32_t r = 0; r < 2; ++r) {
      c.schedules[r].cuts = equal_cuts(2);
      auto& lane = c.schedules[r].lanes.emplace_back();
      for (const uint32_t j : {in_place ? 1u : 0u, in_place ? 0u : 1u}) {
        lane.push_back(send(1 - r, in(j)));
        lane.push_back(recv(1 - r, out(2 * (1 - r) + j)));
      }
      if (!in_place) lane.push_back(copy(out(2 * r, 2), in(0, 2)));
    }
    return c;
  }));
  const Proof proof = verify_algorithm(raw.table, two_ranks(TUTTI_ALL_GATHER));
  EXPECT_STREQ(fault_name(proof.fault), "in_place_order") << proof.error;
  EXPECT_NE(proof.error.find("rank 0: in place it exchanges other messages"), std::string::npos) << proof.error;
}

TEST(VerifyAlgorithm, NamesTheFormThatFails) {
  RawAlgorithm raw(emits([](bool in_place) {
    Case c = staged_all_gather(in_place);
    if (in_place) c.schedules[1].lanes[0].pop_back();
    return c;
  }));
  const Proof proof = verify_algorithm(raw.table, two_ranks(TUTTI_ALL_GATHER));
  EXPECT_EQ(proof.fault, Fault::wrong_result);
  EXPECT_EQ(proof.error.find("in place everywhere: rank 1"), 0u) << proof.error;
}

}  // namespace
}  // namespace tutti
