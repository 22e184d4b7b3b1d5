// SPDX-License-Identifier: Apache-2.0
//
// Correct schedules are proved, and each planted fault is found and told by its own words.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <algorithm>

#include "schedule_builder.hpp"

namespace tutti {
namespace {
using namespace hand;

Proof check(const Case& c) { return verify(c.problem, c.schedules); }

void expect_proved(const Case& c) {
  const Proof proof = check(c);
  EXPECT_TRUE(proof.ok()) << fault_name(proof.fault) << ": " << proof.error;
}

void expect_fault(const Case& c, Fault fault, std::initializer_list<const char*> words) {
  const Proof proof = check(c);
  EXPECT_STREQ(fault_name(proof.fault), fault_name(fault)) << proof.error;
  for (const char* word : words)
    EXPECT_NE(proof.error.find(word), std::string::npos) << '"' << word << "\" in: " << proof.error;
}

TEST(Verify, ProvesCorrectSchedules) {
  for (const bool in_place : {false, true})
    for (uint32_t n = 1; n <= 9; ++n) {
      SCOPED_TRACE(testing::Message() << n << (in_place ? " in place" : ""));
      expect_proved(ring_all_reduce(n, in_place));
      for (const bool exclusive : {false, true}) expect_proved(line_scan(n, in_place, exclusive));
      if (n < 2) continue;
      expect_proved(direct_all_reduce(n, in_place));
      expect_proved(direct_all_reduce(n, in_place, 1));
      expect_proved(direct_all_reduce(n, in_place, 3));
      expect_proved(all_to_all(n, in_place));
      expect_proved(direct_reduce_scatter(n, in_place));
      expect_proved(direct_barrier(n));
      for (uint32_t root = 0; root < n; ++root) {
        expect_proved(line_broadcast(n, root, in_place));
        expect_proved(line_reduce(n, root, in_place));
      }
    }
  expect_proved(staged_all_gather());
  expect_proved(staged_all_gather(true));
  for (const bool in_place : {false, true}) {
    expect_proved(torus_all_reduce(2, 3, in_place));
    for (const uint32_t copies : {0u, 1u, 2u}) expect_proved(staged_run_all_gather(copies, in_place));
  }
}

TEST(Verify, ScansHoldTheFirstRanksInOrder) {
  Case c = line_scan(3);
  EXPECT_TRUE(check(c).rank_order);
  c.schedules[1].lanes[0][0].op.flags &= ~uint32_t{TUTTI_STEP_INCOMING_LEFT};
  expect_fault(c, Fault::wrong_result, {"rank 1", "out[0]", "not in the order of ranks"});
  c = line_scan(3);
  c.schedules[1].lanes[0] = {copy(out(0), in(0), TUTTI_STEP_LOAD | TUTTI_STEP_FINAL)};
  c.schedules[0].lanes[0].erase(c.schedules[0].lanes[0].begin());
  c.schedules[2].lanes[0] = c.schedules[1].lanes[0];
  expect_fault(c, Fault::wrong_result, {"rank 1", "lacks the contribution of rank 0"});
  c = line_scan(3);  // an all_reduce
  c.schedules[0].lanes[0].push_back(recv(2, out(0)));
  c.schedules[2].lanes[0].push_back(send(0, out(0)));
  expect_fault(c, Fault::wrong_result, {"rank 0", "holds the contribution of rank 1, which is not to be in it"});
}

// avg divides where a value is complete, which is at one rank only.
TEST(Verify, ScansAreFinalAtTheirOwnRank) {
  Case c = line_scan(3);
  auto& lane = c.schedules[1].lanes[0];
  lane[0].op.flags |= TUTTI_STEP_FINAL;
  lane.pop_back();
  expect_fault(c, Fault::scaling, {"rank 2", "which is FINAL"});
  c = line_scan(2, false, true);
  c.schedules[0].lanes[0].insert(c.schedules[0].lanes[0].begin(),
                                 copy(scratch(0), in(0), TUTTI_STEP_LOAD | TUTTI_STEP_FINAL));
  expect_fault(c, Fault::scaling, {"rank 0", "has FINAL", "holds the contribution of rank 0"});
}

TEST(Verify, RankZeroHasNoExclusiveResult) {
  Case c = line_scan(2, false, true);
  c.schedules[0].lanes[0].push_back(copy(out(0), in(0), TUTTI_STEP_LOAD | TUTTI_STEP_FINAL));
  expect_fault(c, Fault::form, {"rank 0", "OUT, which this rank does not have in exclusive_scan"});
}

TEST(Verify, MixedInPlace) {
  Case c = ring_all_reduce(5);
  for (uint32_t rank = 1; rank < 5; rank += 2) c.problem.in_place[rank] = true;
  expect_proved(c);
}

TEST(Verify, CountsRing) {
  const Proof proof = check(ring_all_reduce(8));
  EXPECT_EQ(proof.steps, 8u * 28u);
  EXPECT_EQ(proof.messages, 8u * 14u);
  EXPECT_EQ(proof.rounds, 14u);
  EXPECT_EQ(proof.lanes, 1u);
  EXPECT_EQ(proof.most_in_flight, 1u);
  EXPECT_DOUBLE_EQ(proof.bytes_sent, 2.0 * 7 / 8);
  EXPECT_DOUBLE_EQ(proof.bytes_lower_bound, 2.0 * 7 / 8);
  EXPECT_TRUE(proof.same_tree);
  EXPECT_FALSE(proof.rank_order);
}

TEST(Verify, TreesOfDirect) {
  Case c = direct_all_reduce(4);
  Proof proof = check(c);
  EXPECT_TRUE(proof.same_tree);
  EXPECT_TRUE(proof.rank_order);
  EXPECT_EQ(proof.scratch_chunks, 3u);
  // The first two operands of a fold commute; the others do not.
  std::swap(c.schedules[1].lanes[0].back().sources[0], c.schedules[1].lanes[0].back().sources[1]);
  proof = check(c);
  EXPECT_TRUE(proof.same_tree);
  EXPECT_FALSE(proof.rank_order);
  std::swap(c.schedules[1].lanes[0].back().sources[1], c.schedules[1].lanes[0].back().sources[3]);
  proof = check(c);
  EXPECT_TRUE(proof.ok());
  EXPECT_FALSE(proof.same_tree);
}

// The same tree everywhere, and operands in rank order: the canonical tree is asked for by its shape.
TEST(Verify, CanonicalTree) {
  EXPECT_FALSE(check(ring_all_reduce(4)).canonical);
  Case c = direct_all_reduce(4);
  EXPECT_TRUE(check(c).rank_order);
  EXPECT_FALSE(check(c).canonical) << "a fold rounds once";
  std::vector<std::vector<tutti_span>> values;
  for (const Schedule& s : c.schedules) values.push_back(s.lanes[0].back().sources);
  // Rank r reduces what it has, in pairs that it joins in one of the places in scratch.
  const auto reduce_in_pairs = [&](uint32_t rank, bool balanced) {
    const std::vector<tutti_span>& v = values[rank];
    const tutti_span low = rank == 0 ? v[1] : v[0], high = rank == 3 ? v[2] : v[3];
    auto& lane = c.schedules[rank].lanes[0];
    lane.erase(std::ranges::find(lane, uint32_t{TUTTI_STEP_REDUCE}, [](const Step& s) { return s.op.kind; }), lane.end());
    const auto raw = [&](tutti_span a, tutti_span b) {
      return a.buffer == TUTTI_BUFFER_IN || b.buffer == TUTTI_BUFFER_IN ? uint32_t{TUTTI_STEP_LOAD} : 0u;
    };
    lane.push_back(reduce(low, {v[0], v[1]}, raw(v[0], v[1])));
    if (balanced) {
      lane.push_back(reduce(high, {v[2], v[3]}, raw(v[2], v[3])));
      lane.push_back(reduce(out(0), {low, high}, TUTTI_STEP_FINAL));
    } else {
      lane.push_back(reduce(low, {low, v[2]}, raw(low, v[2])));
      lane.push_back(reduce(out(0), {low, v[3]}, TUTTI_STEP_FINAL | raw(low, v[3])));
    }
  };
  for (const bool balanced : {true, false}) {
    for (uint32_t rank = 0; rank < 4; ++rank) reduce_in_pairs(rank, balanced);
    const Proof proof = check(c);
    ASSERT_TRUE(proof.ok()) << proof.error;
    EXPECT_TRUE(proof.same_tree && proof.rank_order);
    EXPECT_EQ(proof.canonical, balanced) << "((0 1) 2) 3 has the operands in order, too";
  }
  for (uint32_t rank = 0; rank < 4; ++rank) reduce_in_pairs(rank, true);
  std::swap(c.schedules[2].lanes[0].back().sources[0], c.schedules[2].lanes[0].back().sources[1]);
  EXPECT_TRUE(check(c).same_tree);
  EXPECT_FALSE(check(c).canonical) << "the lower half is the left operand";
}

// An average is divided before it is rounded, or after.
TEST(Verify, CanonicalTreesAreFinalWhereTheyAreReduced) {
  Case c = line_reduce(2, 0);
  EXPECT_TRUE(check(c).canonical);
  auto& lane = c.schedules[0].lanes[0];
  ASSERT_EQ(lane.size(), 1u);
  lane[0].op.flags &= ~uint32_t{TUTTI_STEP_FINAL};
  lane[0].op.dst = scratch(0);
  c.schedules[0].scratch.resize(1);
  lane.push_back(copy(out(0), scratch(0), TUTTI_STEP_FINAL));
  EXPECT_TRUE(check(c).ok()) << check(c).error;
  EXPECT_FALSE(check(c).canonical);
}

// One step reduces the contributions themselves, in whatever order, and is FINAL.
TEST(Verify, FlatTrees) {
  EXPECT_TRUE(check(direct_all_reduce(4)).flat);
  EXPECT_TRUE(check(ring_all_reduce(1)).flat) << "a copy";
  EXPECT_TRUE(check(ring_all_reduce(2)).flat) << "one RECV_REDUCE";
  for (const uint32_t n : {3u, 4u}) EXPECT_FALSE(check(ring_all_reduce(n)).flat);
  EXPECT_TRUE(check(line_reduce(2, 0)).flat);
  EXPECT_FALSE(check(line_reduce(3, 0)).flat);
  EXPECT_FALSE(check(line_broadcast(3, 0)).flat) << "it reduces nothing";
  Case c = direct_all_reduce(4);
  std::swap(c.schedules[1].lanes[0].back().sources[1], c.schedules[1].lanes[0].back().sources[3]);
  EXPECT_FALSE(check(c).same_tree);
  EXPECT_TRUE(check(c).flat) << "whatever the order";
}

TEST(Verify, FlatTreesAreReducedOnce) {
  Case c = direct_all_reduce(4);
  auto& lane = c.schedules[2].lanes[0];
  const std::vector<tutti_span> values = lane.back().sources;
  lane.back() = reduce(scratch(3), {values[0], values[1]});  // rank 2's own value is the third
  lane.push_back(reduce(out(0), {scratch(3), values[2], values[3]}, TUTTI_STEP_LOAD | TUTTI_STEP_FINAL));
  c.schedules[2].scratch.push_back({0, 0});
  ASSERT_TRUE(check(c).ok()) << check(c).error;
  EXPECT_TRUE(check(c).rank_order);
  EXPECT_FALSE(check(c).flat) << "a part was rounded before";
  lane.back().sources.push_back(values[1]);
  ++lane.back().op.sources;
  EXPECT_EQ(check(c).fault, Fault::wrong_result);
}

// The divisor of an average belongs to the one rounding.
TEST(Verify, FlatTreesAreFinalWhereTheyAreReduced) {
  Case c = direct_all_reduce(3);
  auto& lane = c.schedules[1].lanes[0];
  lane.back().op.flags &= ~uint32_t{TUTTI_STEP_FINAL};
  lane.back().op.dst = scratch(0);
  lane.push_back(copy(out(0), scratch(0), TUTTI_STEP_FINAL));
  ASSERT_TRUE(check(c).ok()) << check(c).error;
  EXPECT_FALSE(check(c).flat);
}

TEST(Verify, IncomingLeftDecidesTheOrder) {
  Case c = line_reduce(2, 1);  // rank 1 is the root, and what comes is rank 0's
  EXPECT_FALSE(check(c).rank_order);
  c.schedules[1].lanes[0][0].op.flags |= TUTTI_STEP_INCOMING_LEFT;
  EXPECT_TRUE(check(c).rank_order);
}

TEST(Verify, MissingDependency) {
  Case c = staged_all_gather();
  c.schedules[1].lanes[0][1].op.dependency_lane = TUTTI_NO_DEPENDENCY;
  c.schedules[1].lanes[0][1].op.dependency_step = 0;
  expect_fault(c, Fault::race, {"rank 1 lane 0 step 1", "rank 1 lane 1 step 1", "scratch[0]", "no dependency"});
}

// With one element and a cut at 1/2 piece 0 is empty: its messages are dropped and order nothing of piece 1.
TEST(Verify, MessagesThatMayBeEmptyOrderNothingElse) {
  Case c = make_case(TUTTI_BROADCAST, 3);
  auto &root = c.schedules[0], &relay = c.schedules[1], &last = c.schedules[2];
  for (auto& schedule : c.schedules) schedule.cuts = equal_cuts(2);
  root.scratch = {{0, 0}};
  root.lanes = {{copy(out(0, 2), in(0, 2)), send(1, in(1)), send(1, in(1)), send(2, in(0))},
                {send(1, in(0)), recv(1, scratch(0)), send(1, scratch(0))},
                {send(1, in(1))}};
  relay.scratch = {{0, 1}, {0, 0}};
  relay.lanes = {{recv(0, scratch(0)), recv(0, out(1)), send(2, scratch(0))},
                 {recv(0, out(0)), after(send(0, out(0)), 0, 2), recv(0, scratch(1))},
                 {after(recv(0, scratch(0)), 1, 2)}};  // ordered by a round trip of piece 0 only
  last.lanes = {{recv(0, out(0)), recv(1, out(1))}};
  expect_fault(c, Fault::race, {"rank 1", "scratch[0]"});
}

TEST(Verify, StepsOfALaneThatDoNotConflictAreNotOrdered) {
  // The nop waits for the receive, but the copy behind it does not wait for the nop.
  Case c = staged_all_gather();
  auto& lane = c.schedules[0].lanes[0];
  lane.insert(lane.begin() + 1, after(nop(), 1, 1));
  lane[2].op.dependency_lane = TUTTI_NO_DEPENDENCY;
  lane[2].op.dependency_step = 0;
  expect_fault(c, Fault::race, {"rank 0"});
}

TEST(Verify, SwappedChunk) {
  Case c = ring_all_reduce(4);
  auto& lane = c.schedules[2].lanes[0];
  c.schedules[2].cuts = c.schedules[0].cuts;
  std::swap(lane[7].op.dst.first, lane[9].op.dst.first);  // sizes differ too: the symbolic extent tells
  expect_fault(c, Fault::size_mismatch, {"rank 2 lane 0 step 7", "rank 1"});
  // Where the sizes are equal (blocks), the contents tell.
  c = all_to_all(4);
  std::swap(c.schedules[2].lanes[0][1].op.dst.first, c.schedules[2].lanes[0][3].op.dst.first);
  expect_fault(c, Fault::wrong_result, {"rank 2", "out[0]", "should hold in[2] of rank 0"});
}

TEST(Verify, DoubleReduce) {
  Case c = direct_all_reduce(3);
  c.schedules[1].lanes[0].back().sources[2] = scratch(0);
  expect_fault(c, Fault::wrong_result, {"rank 1", "out[0]", "contribution of rank 0 more than once"});
}

TEST(Verify, MissingContribution) {
  Case c = direct_all_reduce(3);
  Step& sum = c.schedules[1].lanes[0].back();
  sum.sources.pop_back();
  sum.op.sources = 2;
  expect_fault(c, Fault::wrong_result, {"rank 1", "out[0]", "lacks the contribution of rank 2"});
}

TEST(Verify, CyclicWait) {
  // Both send twice before they receive: with two steps in flight nobody gets to a receive.
  Case c = make_case(TUTTI_ALL_GATHER, 2);
  for (uint32_t r = 0; r < 2; ++r) {
    c.schedules[r].cuts = equal_cuts(2);
    auto& lane = c.schedules[r].lanes.emplace_back();
    for (uint32_t j = 0; j < 2; ++j) lane.push_back(send(1 - r, in(j)));
    for (uint32_t j = 0; j < 2; ++j) lane.push_back(recv(1 - r, out(2 * (1 - r) + j)));
    lane.push_back(copy(out(2 * r, 2), in(0, 2)));
  }
  expect_fault(c, Fault::deadlock, {"rank 0 lane 0 step 2", "rank 1 lane 0 step 2", "waits for", "cycle"});
  // One after the other is right.
  for (uint32_t r = 0; r < 2; ++r) std::swap(c.schedules[r].lanes[0][1], c.schedules[r].lanes[0][2]);
  expect_proved(c);
}

TEST(Verify, CyclicWaitThroughDependencies) {
  // Each rank sends only after it has received.
  Case c = make_case(TUTTI_ALL_GATHER, 2);
  for (uint32_t r = 0; r < 2; ++r)
    c.schedules[r].lanes = {
        {recv(1 - r, out(1 - r)), copy(out(r), in(0))}, {nop(), nop()}, {after(send(1 - r, in(0)), 0, 0)}};
  for (Schedule& s : c.schedules) {
    std::swap(s.lanes[0], s.lanes[1]);  // the receive waits in lane 1, its message comes on lane 2
    s.lanes[2][0].op.dependency_lane = 1;
  }
  expect_fault(c, Fault::unmatched, {});
  for (Schedule& s : c.schedules) {
    s.lanes[0] = {after(send(s.lanes[2][0].op.peer, in(0)), 1, 0)};
    s.lanes.pop_back();
    std::swap(s.lanes[0], s.lanes[1]);
    s.lanes[1][0].op.dependency_lane = 0;
    s.lanes[0].insert(s.lanes[0].begin(), after(recv(s.lanes[0][0].op.peer, out(0)), 1, 0));
  }
  expect_fault(c, Fault::form, {"waits for itself"});
  for (uint32_t r = 0; r < 2; ++r) {
    // Lane 0 receives, then sends what lane 1 wants; lane 1 receives it before it lets lane 0's first receive be
    // answered.
    c.schedules[r].lanes = {{recv(1 - r, out(1 - r)), copy(out(r), in(0))}, {after(nop(), 0, 0)}};
    c.schedules[r].lanes[0].insert(c.schedules[r].lanes[0].begin() + 1, after(send(1 - r, in(0)), 1, 0));
  }
  expect_fault(c, Fault::deadlock, {"rank 0 lane 0 step 1", "rank 1 lane 0 step 1", "lane 1 step 0", "cycle"});
}

TEST(Verify, InPlaceRace) {
  // Out of place lane 1 may read IN while lane 0 writes OUT; in place they are one.
  Case c = make_case(TUTTI_ALL_REDUCE, 2);
  for (uint32_t r = 0; r < 2; ++r) {
    c.schedules[r].lanes.resize(2);
    c.schedules[r].lanes[r] = {send(1 - r, in(0), TUTTI_STEP_LOAD)};
    c.schedules[r].lanes[1 - r] = {recv_reduce(1 - r, out(0), in(0), TUTTI_STEP_LOAD | TUTTI_STEP_FINAL)};
  }
  expect_proved(c);
  c.problem.in_place.assign(2, true);
  expect_fault(c, Fault::race, {"rank 0 lane 1 step 0", "rank 0 lane 0 step 0", "out[0]"});
}

TEST(Verify, SizeMismatch) {
  Case c = ring_all_reduce(3);
  c.schedules[1].lanes[0][1].op.dst = c.schedules[1].lanes[0][1].op.src = out(1);
  c.schedules[1].lanes[0][1].op.src.buffer = TUTTI_BUFFER_IN;
  expect_fault(c, Fault::size_mismatch, {"rank 0 lane 0 step 0", "piece 0", "rank 1 lane 0 step 1", "piece 1"});
  c = ring_all_reduce(3);
  c.schedules[1].lanes[0][1].op.src.first = 1;
  expect_fault(c, Fault::size_mismatch,
               {"rank 1 lane 0 step 1", "piece 0 at the destination", "piece 1 at the source"});
}

TEST(Verify, ScratchReusedTooSoon) {
  Case c = staged_all_gather();
  for (const uint32_t copies : {1u, 2u, 5u}) {
    for (Schedule& s : c.schedules) s.scratch_copies = copies;
    expect_fault(c, Fault::slice_reuse,
                 {"lane 1 step 1", "lane 0 step 1", "scratch[0]", "reused too soon", "of slice 0"});
  }
  // With one lane the order of the lane is enough.
  expect_proved(direct_all_reduce(3, false, 1));
}

TEST(Verify, Unmatched) {
  Case c = ring_all_reduce(3);
  c.schedules[2].lanes[0].push_back(send(0, out(0)));
  expect_fault(c, Fault::unmatched, {"rank 2 lane 0 step 8", "nobody receives it", "rank 0"});
  c = ring_all_reduce(3);
  c.schedules[2].lanes[0].pop_back();
  expect_fault(c, Fault::unmatched, {"rank 1 lane 0 step 6", "nobody receives it", "rank 2 receives fewer"});
  c = ring_all_reduce(3);
  c.schedules[2].lanes[0].push_back(recv(0, out(0)));
  expect_fault(c, Fault::unmatched, {"rank 2 lane 0 step 8", "nothing is sent to it"});
  c = direct_barrier(2);
  c.schedules[0].lanes[0][1] = nop();
  expect_fault(c, Fault::unmatched, {"signal"});
}

TEST(Verify, Scaling) {
  Case c = ring_all_reduce(3);
  c.schedules[1].lanes[0][0].op.flags = 0;
  expect_fault(c, Fault::scaling, {"rank 1 lane 0 step 0", "without LOAD"});
  c = ring_all_reduce(3);
  c.schedules[1].lanes[0][2].op.flags = TUTTI_STEP_LOAD;
  expect_fault(c, Fault::scaling, {"rank 1 lane 0 step 2", "not raw input"});
  c = ring_all_reduce(3);
  c.schedules[1].lanes[0][3].op.flags = TUTTI_STEP_LOAD;
  expect_fault(c, Fault::scaling, {"out[2]", "FINAL"});
  c = ring_all_reduce(3);
  c.schedules[1].lanes[0][1].op.flags |= TUTTI_STEP_FINAL;
  expect_fault(c, Fault::scaling, {"rank 1 lane 0 step 1", "lacks the contribution"});
  c = line_broadcast(3, 0);
  c.schedules[0].lanes[0][0].op.flags = TUTTI_STEP_LOAD;
  expect_fault(c, Fault::scaling, {"rank 0 lane 0 step 0", "reduces nothing"});
  c = ring_all_reduce(1);
  c.schedules[0].lanes[0][0].op.flags = TUTTI_STEP_LOAD;
  expect_fault(c, Fault::scaling, {"rank 0", "FINAL"});
  c = ring_all_reduce(1, true);
  c.schedules[0].lanes[0].clear();
  expect_fault(c, Fault::scaling, {"rank 0", "FINAL"});
}

TEST(Verify, WritesToIn) {
  Case c = all_to_all(3);
  c.schedules[1].lanes[0][1].op.dst.buffer = TUTTI_BUFFER_IN;
  expect_fault(c, Fault::overwritten, {"rank 1 lane 0 step 1", "writes IN"});
  c = direct_reduce_scatter(3, true);  // in place only the rank's own block is output
  c.schedules[1].lanes[0][1].op.dst = in(0);
  expect_fault(c, Fault::overwritten, {"rank 1 lane 0 step 1"});
}

TEST(Verify, ReadsWhatNobodyWrote) {
  Case c = line_broadcast(3, 0);
  c.schedules[1].scratch = {{0, 0}};
  c.schedules[1].lanes[0][1].op.src = scratch(0);
  expect_fault(c, Fault::wrong_result, {"rank 1 lane 0 step 1", "scratch[0]", "nothing has written"});
  c = line_broadcast(3, 0);
  c.schedules[0].lanes[0].pop_back();
  expect_fault(c, Fault::wrong_result, {"rank 0", "out[0]", "never written"});
}

TEST(Verify, BarrierWithAHole) {
  Case c = direct_barrier(4);
  auto& from = c.schedules[2].lanes[0];
  auto& to = c.schedules[3].lanes[0];
  std::erase_if(from, [](const Step& s) { return !(s.op.flags & TUTTI_STEP_WAIT) && s.op.peer == 3; });
  std::erase_if(to, [](const Step& s) { return (s.op.flags & TUTTI_STEP_WAIT) && s.op.peer == 2; });
  expect_fault(c, Fault::wrong_result, {"rank 3 may leave the barrier before rank 2"});
}

TEST(Verify, RanksMustAgree) {
  Case c = ring_all_reduce(2);
  c.schedules[1].cuts[0] = {1, 3};
  expect_fault(c, Fault::form, {"rank 1", "cuts"});
  c = ring_all_reduce(2);
  c.schedules[1].flags = 0;
  expect_fault(c, Fault::form, {"SLICED"});
  c = ring_all_reduce(2);
  c.schedules.pop_back();
  expect_fault(c, Fault::form, {"1 schedules for 2 ranks"});
}

TEST(Fusions, ForwardedChunks) {
  const Case c = ring_all_reduce(3);
  // send rr | send rr(final) | send recv | send recv: every receive but the last is forwarded at once.
  EXPECT_EQ(find_fusions(c.schedules[0])[0], (std::vector<bool>{false, true, false, true, false, true, false, false}));
  Case line = line_broadcast(3, 0);
  EXPECT_EQ(find_fusions(line.schedules[1])[0], (std::vector<bool>{true, false}));
  line.schedules[1].lanes.emplace_back().push_back(nop());
  line.schedules[1].lanes[0][1] = after(line.schedules[1].lanes[0][1], 1, 0);
  EXPECT_EQ(find_fusions(line.schedules[1])[0], (std::vector<bool>{false, false}));
}

// A scatter whose order of messages depends on the root's being in place: right for nobody and for everybody in place,
// wrong for what happens, since only the root has both buffers.
tutti_status fickle_scatter(void*, const tutti_query* q, const tutti_schedule_sink* sink) {
  const bool in_place = q->flags & TUTTI_QUERY_IN_PLACE;
  const tutti_extent whole{0, 0};
  const auto add = [&](const Step& step) { sink->add_step(sink->self, 0, &step.op, nullptr); };
  if (q->rank == 1) sink->set_scratch(sink->self, &whole, 1, 0);
  if (q->rank == 0) {
    if (!in_place) add(copy(out(0), in(0)));
    add(send(1, in(in_place ? 1 : 2)));
    add(send(1, in(in_place ? 2 : 1)));
  } else if (q->rank == 1) {
    add(recv(0, in_place ? out(0) : scratch(0)));
    add(recv(0, in_place ? scratch(0) : out(0)));
    add(send(2, scratch(0)));
  } else {
    add(recv(1, out(0)));
  }
  return TUTTI_OK;
}

TEST(VerifyAlgorithm, TheRootAloneInPlaceIsProvedToo) {
  tutti_algorithm fickle{};
  fickle.struct_size = sizeof fickle;
  fickle.name = "fickle";
  fickle.summary = "wrong";
  fickle.collectives = 1u << TUTTI_SCATTER;
  fickle.supports = [](void*, const tutti_query*) -> tutti_status { return TUTTI_OK; };
  fickle.schedule = fickle_scatter;
  Problem problem;
  problem.collective = TUTTI_SCATTER;
  problem.nranks = 3;
  const Proof proof = verify_algorithm(fickle, problem);
  EXPECT_EQ(proof.fault, Fault::wrong_result) << proof.error;
  EXPECT_NE(proof.error.find("in place at the root only"), std::string::npos) << proof.error;
}

// all_gather on three ranks. Ranks 2 and 0 exchange two blocks of equal size, in place in the other order than out of
// place: each form is right where both have it, and wrong where one has and the other has not.
tutti_status moody_all_gather(void*, const tutti_query* q, const tutti_schedule_sink* sink) {
  const bool in_place = q->flags & TUTTI_QUERY_IN_PLACE;
  const auto add = [&](const Step& step) { sink->add_step(sink->self, 0, &step.op, nullptr); };
  if (!in_place) add(copy(out(q->rank), in(0)));
  if (q->rank == 0) {
    add(recv(2, out(in_place ? 2 : 1)));
    add(recv(2, out(in_place ? 1 : 2)));
    add(send(1, in(0)));
    add(send(1, out(2)));
    add(send(2, in(0)));
  } else if (q->rank == 1) {
    add(send(2, in(0)));
    add(recv(0, out(0)));
    add(recv(0, out(2)));
  } else {
    add(recv(1, out(1)));
    add(send(0, in_place ? in(0) : out(1)));
    add(send(0, in_place ? out(1) : in(0)));
    add(recv(0, out(0)));
  }
  return TUTTI_OK;
}

TEST(VerifyAlgorithm, EveryMixOfAFewRanksIsProved) {
  tutti_algorithm moody{};
  moody.struct_size = sizeof moody;
  moody.name = "moody";
  moody.summary = "wrong";
  moody.collectives = 1u << TUTTI_ALL_GATHER;
  moody.supports = [](void*, const tutti_query*) -> tutti_status { return TUTTI_OK; };
  moody.schedule = moody_all_gather;
  Problem problem;
  problem.collective = TUTTI_ALL_GATHER;
  problem.nranks = 3;
  const Proof proof = verify_algorithm(moody, problem);
  EXPECT_EQ(proof.fault, Fault::wrong_result) << proof.error;
  EXPECT_NE(proof.error.find("in place on ranks 0: "), std::string::npos) << proof.error;
}

}  // namespace
}  // namespace tutti
