// SPDX-License-Identifier: Apache-2.0
//
// Levels: those that are given hold; each rule broken is found.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include "schedule/stream_order.hpp"
#include "schedule_builder.hpp"

namespace tutti {
namespace {
using namespace hand;

Case with_levels(Case c, Case in_place) {
  std::vector<Schedule> forms[2] = {std::move(c.schedules), std::move(in_place.schedules)};
  EXPECT_EQ(give_levels(c.problem, forms), "");
  c.schedules = std::move(forms[0]);
  return c;
}
Case ring() { return with_levels(ring_all_reduce(4), ring_all_reduce(4, true)); }

void expect_fault(const Case& c, const std::string& words) {
  const Proof proof = verify(c.problem, c.schedules);
  EXPECT_EQ(fault_name(proof.fault), std::string("levels")) << proof.error;
  EXPECT_NE(proof.error.find(words), std::string::npos) << proof.error;
}

TEST(Levels, AreTheRoundsOfARing) {
  const Case c = ring();
  EXPECT_EQ(verify(c.problem, c.schedules).error, "");
  for (size_t i = 0; i < c.schedules[2].lanes[0].size(); ++i)
    EXPECT_EQ(c.schedules[2].lanes[0][i].op.level, i / 2 + 1) << describe(c.schedules[2].lanes[0][i]);
  EXPECT_EQ(c.schedules[2].slice_levels(), 5u) << "the last of six messages to the same rank, before the first again";
}

TEST(Levels, TheEndsOfAMessageDiffer) {
  Case c = ring();
  ++c.schedules[1].lanes[0].back().op.level;
  expect_fault(c, "the other end of its message");
}

TEST(Levels, AStepIsNotAboveWhatItWaitsFor) {
  Case c = ring();
  for (Schedule& s : c.schedules)
    for (Step& step : s.lanes[0])
      if (step.op.level == 2) step.op.level = 1;
  expect_fault(c, "which it waits for");
}

TEST(Levels, FallAlongAWay) {
  Case c = make_case(TUTTI_BROADCAST, 2);
  c.schedules[0].cuts = c.schedules[1].cuts = equal_cuts(2);
  c.schedules[0].lanes = {{send(1, in(0)), send(1, in(1)), copy(out(0, 2), in(0, 2))}};
  c.schedules[1].lanes = {{recv(0, out(0)), recv(0, out(1))}};
  for (Schedule& s : c.schedules)
    for (Step& step : s.lanes[0]) step.op.level = step.op.kind == TUTTI_STEP_COPY ? 1 : 3;
  EXPECT_EQ(verify(c.problem, c.schedules).error, "");
  for (Schedule& s : c.schedules) s.lanes[0][1].op.level = 2;
  expect_fault(c, "the message after it on its way");
}

TEST(Levels, SlicesAreTooClose) {
  Case c = ring();
  for (Schedule& s : c.schedules) s.flags -= TUTTI_SCHEDULE_SLICE_LEVELS(1);
  expect_fault(c, "of the next slice");
}

TEST(Levels, SlicesThatShareScratchAreTooClose) {
  const auto staged = [] { return with_levels(staged_run_all_gather(1), staged_run_all_gather(1, true)); };
  Case c = staged();
  ASSERT_EQ(verify(c.problem, c.schedules).error, "");
  ASSERT_EQ(c.schedules[0].slice_levels(), 2u) << "a receive into the scratch and a copy from it";
  for (Schedule& s : c.schedules) s.flags -= TUTTI_SCHEDULE_SLICE_LEVELS(1);
  expect_fault(c, "which it waits for");
}

TEST(Levels, SomeRanksHaveNone) {
  Case c = with_levels(direct_reduce_scatter(3), direct_reduce_scatter(3, true));
  for (Step& step : c.schedules[2].lanes[0]) step.op.level = 0;
  expect_fault(c, "some have none");
}

}  // namespace
}  // namespace tutti
