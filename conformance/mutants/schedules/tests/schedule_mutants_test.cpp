// SPDX-License-Identifier: Apache-2.0
//
// The search itself: it must find what is wrong in sets that were broken by hand, and nothing in correct ones.
#include "mutants/schedules/schedule_mutants.hpp"

#include <gtest/gtest.h>

#include "mutants/schedules/interleavings.hpp"
#include "mutants/schedules/staged.hpp"
#include "mutants/schedules/streams.hpp"

namespace tutti::conformance {
namespace {

std::vector<NamedSet> staged_sets() {
  std::vector<NamedSet> sets;
  add_staged_sets(sets);
  return sets;
}

TEST(Search, FindsNothingInCorrectSets) {
  for (const NamedSet& named : staged_sets()) {
    EXPECT_TRUE(verify(named.set.problem, named.set.schedules).ok())
        << named.name << ": " << verify(named.set.problem, named.set.schedules).error;
    const SearchResult found = search_all_sizes(named.set);
    EXPECT_EQ(found.wrong, "") << named.name;
    EXPECT_TRUE(found.complete);
  }
}

TEST(Search, FindsAForgottenDependency) {
  NamedSet named = staged_sets().front();  // copied apart
  tutti_step& copy = named.set.schedules[1].lanes[0][0].op;
  ASSERT_EQ(copy.dependency_lane, 1u);
  copy.dependency_lane = TUTTI_NO_DEPENDENCY;
  copy.dependency_step = 0;
  const SearchResult found = search_interleavings(named.set, {8, 1});
  EXPECT_NE(found.wrong.find("rank 1: out["), std::string::npos) << found.wrong;
}

TEST(Search, FindsScratchThatIsReusedTooSoon) {
  NamedSet named = staged_sets().front();
  for (Schedule& schedule : named.set.schedules) schedule.scratch_copies = 1;
  EXPECT_EQ(search_interleavings(named.set, {8, 1}).wrong, "") << "one slice reuses nothing";
  EXPECT_NE(search_interleavings(named.set, {8, 2}).wrong.find("in slice"), std::string::npos);
  EXPECT_EQ(verify(named.set.problem, named.set.schedules).fault, Fault::slice_reuse);
}

TEST(Search, FindsADeadlockThatBufferingHides) {
  NamedSet named = staged_sets()[1];
  for (Schedule& schedule : named.set.schedules) {
    auto& lane = schedule.lanes[1];  // SEND RECV COPY SEND RECV COPY: now SEND SEND before the first RECV
    std::swap(lane[1], lane[3]);
    std::swap(lane[2], lane[3]);
  }
  EXPECT_NE(search_interleavings(named.set, {8, 1}).wrong.find("nothing moves any more"), std::string::npos);
  EXPECT_EQ(verify(named.set.problem, named.set.schedules).fault, Fault::deadlock);
}

TEST(Search, TakesBothWaysRoundOfEveryRace) {
  // Two lanes write the same: a race to the verifier, and two orders to the search, both right.
  NamedSet named;
  named.set.problem = {TUTTI_BROADCAST, 1, 0, 8, {}, {false}};
  Step copy;
  copy.op.kind = TUTTI_STEP_COPY;
  copy.op.dependency_lane = TUTTI_NO_DEPENDENCY;
  copy.op.dst = {TUTTI_BUFFER_OUT, 0, 1, 0};
  copy.op.src = {TUTTI_BUFFER_IN, 0, 1, 0};
  named.set.schedules.resize(1);
  named.set.schedules[0].lanes = {{copy}, {copy}};
  const SearchResult found = search_interleavings(named.set, {8, 1});
  EXPECT_EQ(found.wrong, "");
  EXPECT_EQ(found.orders, 2u);
}

// Two ranks gather each other's blocks, with levels as given.
ScheduleSet exchange(uint32_t sent, uint32_t received, uint32_t copied) {
  ScheduleSet set;
  set.problem = {TUTTI_ALL_GATHER, 2, 0, 8, {}, {false, false}};
  for (uint32_t rank = 0; rank < 2; ++rank) {
    const auto step = [&](uint32_t kind, uint32_t level) {
      Step made;
      made.op.kind = kind;
      made.op.level = level;
      made.op.dependency_lane = TUTTI_NO_DEPENDENCY;
      if (kind != TUTTI_STEP_COPY) made.op.peer = 1 - rank;
      if (kind != TUTTI_STEP_RECV) made.op.src = {TUTTI_BUFFER_IN, 0, 1, 0};
      if (kind != TUTTI_STEP_SEND) made.op.dst = {TUTTI_BUFFER_OUT, kind == TUTTI_STEP_RECV ? 1 - rank : rank, 1, 0};
      return made;
    };
    set.schedules.emplace_back().lanes = {
        {step(TUTTI_STEP_SEND, sent), step(TUTTI_STEP_RECV, received), step(TUTTI_STEP_COPY, copied)}};
  }
  return set;
}

// On the host the ranks run: each lane has two steps in flight. In streams each rank would fetch what the other has not
// put, and hold up everything behind it.
TEST(Levels, AnOrderThatWouldLockUpIsRefused) {
  const ScheduleSet right = exchange(1, 1, 2), wrong = exchange(2, 1, 3);
  EXPECT_TRUE(verify(right.problem, right.schedules).ok()) << verify(right.problem, right.schedules).error;
  EXPECT_EQ(search_streams(right), "");
  EXPECT_EQ(search_all_sizes(wrong).wrong, "") << "levels are for streams alone";
  EXPECT_NE(search_streams(wrong).find("waits for ever for its message"), std::string::npos) << search_streams(wrong);
  const Proof proof = verify(wrong.problem, wrong.schedules);
  EXPECT_EQ(proof.fault, Fault::levels);
  EXPECT_NE(proof.error.find("the other end of its message, has level"), std::string::npos) << proof.error;
}

TEST(Mutants, AHoleInTheVerifierWouldBeSeen) {
  // try_schedule_mutants with a set that is wrong from the start.
  NamedSet named = staged_sets().front();
  named.set.schedules[0].lanes[0].pop_back();
  const ScheduleMutants found = try_schedule_mutants({named}, false);
  ASSERT_EQ(found.failures.size(), 1u);
  EXPECT_NE(found.failures[0].find("the verifier refuses the unchanged schedules"), std::string::npos);
  EXPECT_EQ(report_schedule_mutants(found, false), 1);
}

TEST(Mutants, EveryMutationStrikesSomewhere) {
  const ScheduleMutants found = try_schedule_mutants(staged_sets(), false);
  EXPECT_EQ(found.failures, std::vector<std::string>());
  EXPECT_GT(found.by_mutation.size(), 15u);
  for (const auto& [name, count] : found.by_mutation)
    if (name == "drop" || name == "peer" || name == "drop_message" || name == "independent") {
      EXPECT_EQ(count.equivalent, 0u) << name;
      EXPECT_GT(count.killed, 0u) << name;
    }
}

}  // namespace
}  // namespace tutti::conformance
