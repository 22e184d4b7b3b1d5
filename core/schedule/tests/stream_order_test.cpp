// SPDX-License-Identifier: Apache-2.0
//
// Ranks that carry out their sequences strictly one step after the other, with as little room on the ways as there is,
// come to an end; and whatever precedes a step in its lane's data precedes it in the sequence.
#include "schedule/stream_order.hpp"

#include <gtest/gtest.h>

#include <map>
#include <tuple>

#include "schedule_builder.hpp"

namespace tutti {
namespace {
using namespace hand;

StreamShape shape(uint64_t count, uint64_t slices, uint64_t fragment, uint32_t slots) {
  return {count, 4, slices, [=](uint32_t, bool) { return StreamWay{fragment, slots}; }};
}

// Levels for both forms of a case, which has none.
void level(Case& out_of_place, Case& in_place) {
  std::vector<Schedule> forms[2] = {out_of_place.schedules, in_place.schedules};
  EXPECT_EQ(give_levels(out_of_place.problem, forms), "");
  out_of_place.schedules = forms[0];
  in_place.schedules = forms[1];
  for (const Case* c : {&out_of_place, &in_place})
    EXPECT_NE(verify(c->problem, c->schedules).fault, Fault::levels) << "what was given must hold";
}

std::vector<std::vector<StreamStep>> sequences(const Case& out_of_place, const Case& in_place, bool odd_in_place,
                                               const StreamShape& of) {
  Case a = out_of_place, b = in_place;
  level(a, b);
  std::vector<std::vector<StreamStep>> all;
  for (uint32_t r = 0; r < a.problem.nranks; ++r) {
    const Schedule& own = (odd_in_place && r % 2 ? b : a).schedules[r];
    EXPECT_EQ(order_for_stream(own, of, &all.emplace_back()), "");
  }
  return all;
}

// Carries the sequences out; returns how many steps could not be.
size_t left_over(const Case& out_of_place, const Case& in_place, bool odd_in_place,
                 const std::vector<std::vector<StreamStep>>& all, uint32_t slots) {
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, std::pair<uint64_t, uint64_t>> ways;  // put, fetched
  std::vector<size_t> at(all.size(), 0);
  for (bool moved = true; moved;) {
    moved = false;
    for (uint32_t r = 0; r < all.size(); ++r)
      for (; at[r] < all[r].size(); ++at[r], moved = true) {
        const StreamStep& step = all[r][at[r]];
        const Case& form = odd_in_place && r % 2 ? in_place : out_of_place;
        const tutti_step& op = form.schedules[r].lanes[step.lane][step.step].op;
        const bool sending =
            op.kind == TUTTI_STEP_SEND || (op.kind == TUTTI_STEP_SIGNAL && !(op.flags & TUTTI_STEP_WAIT));
        const bool receiving = op.kind == TUTTI_STEP_RECV || op.kind == TUTTI_STEP_RECV_REDUCE ||
                               (op.kind == TUTTI_STEP_SIGNAL && (op.flags & TUTTI_STEP_WAIT));
        if (sending) {
          auto& [put, fetched] = ways[{r, op.peer, step.lane}];
          EXPECT_EQ(step.number, put);
          if (slots && put - fetched == slots) break;
          ++put;
        } else if (receiving) {
          auto& [put, fetched] = ways[{op.peer, r, step.lane}];
          EXPECT_EQ(step.number, fetched);
          if (put == fetched) break;
          ++fetched;
        }
      }
  }
  size_t left = 0;
  for (uint32_t r = 0; r < all.size(); ++r) left += all[r].size() - at[r];
  return left;
}

void expect_end(const Case& a, const Case& b) {
  for (const uint64_t count : {1u, 10u, 1000u})
    for (const uint64_t slices : {1u, 3u})
      for (const bool odd : {false, true}) {
        const auto all = sequences(a, b, odd, shape(count, slices, 64, 1));
        EXPECT_EQ(left_over(a, b, odd, all, 1), 0u)
            << a.problem.nranks << " ranks, " << count << " elements, " << slices << " slices";
      }
}

TEST(StreamOrder, RingsComeToAnEndWithOneSlot) {
  for (const uint32_t n : {2u, 3u, 5u, 8u}) expect_end(ring_all_reduce(n), ring_all_reduce(n, true));
}

TEST(StreamOrder, RunsInSlicesComeToAnEndWithOneSlot) {
  for (const uint32_t columns : {2u, 3u}) expect_end(torus_all_reduce(2, columns), torus_all_reduce(2, columns, true));
  for (const uint32_t copies : {0u, 1u, 2u})
    expect_end(staged_run_all_gather(copies), staged_run_all_gather(copies, true));
  for (const uint32_t copies : {0u, 1u})
    expect_end(direct_all_reduce(4, false, copies), direct_all_reduce(4, true, copies));
}

// Of unequal blocks a rank knows only its own, some of them empty, some of many fragments.
TEST(StreamOrder, UnequalBlocksComeToAnEndWithOneSlot) {
  for (const uint32_t n : {2u, 3u, 5u, 8u}) {
    Case a = all_to_all(n);
    a.problem.collective = TUTTI_ALL_TO_ALL_V;
    Case same = a;
    level(a, same);
    const auto size = [](uint32_t from, uint32_t to) -> uint64_t {
      return (from * 7 + to * 5) % 4 ? (from * 31 + to * 17) % 90 : 0;
    };
    std::vector<std::vector<StreamStep>> all;
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> sent;
    for (uint32_t rank = 0; rank < n; ++rank) {
      StreamShape own = shape(0, 1, 64, 1);
      own.length = [&, rank](uint32_t buffer, uint32_t chunk) {
        return buffer == TUTTI_BUFFER_IN ? size(rank, chunk) : size(chunk, rank);
      };
      EXPECT_EQ(order_for_stream(a.schedules[rank], own, &all.emplace_back()), "");
      for (const StreamStep& step : all.back())
        if (const tutti_step& op = a.schedules[rank].lanes[step.lane][step.step].op; op.kind == TUTTI_STEP_SEND)
          sent[{rank, op.peer}] += step.bytes;
    }
    EXPECT_EQ(left_over(a, a, false, all, 1), 0u) << n << " ranks";
    for (uint32_t from = 0; from < n; ++from)
      for (uint32_t to = 0; to < n; ++to)
        if (from != to) {
          EXPECT_EQ((sent[{from, to}]), size(from, to) * 4) << from << " to " << to;
        }
  }
}

// Each slice of a run is the same slice of each of its chunks.
TEST(StreamOrder, PartsOfARunInSlices) {
  const Case a = torus_all_reduce(2, 2), b = torus_all_reduce(2, 2, true);
  const auto all = sequences(a, b, false, shape(400, 3, 128, 2));      // pieces of 100 elements: 33, 33 and 34
  std::map<std::tuple<uint32_t, uint32_t, uint32_t>, uint64_t> bytes;  // step, slice, part
  for (const StreamStep& step : all[0]) {
    EXPECT_EQ(step.offset, (bytes[{step.step, step.slice, step.part}])) << "fragments in order";
    bytes[{step.step, step.slice, step.part}] += step.bytes;
  }
  for (uint32_t slice = 0; slice < 3; ++slice)
    for (uint32_t part = 0; part < 2; ++part)
      EXPECT_EQ((bytes[{0, slice, part}]), (slice == 2 ? 34u : 33u) * 4) << slice << ' ' << part;
}

// Slices overlap where ways allow it: a chain's first rank sends the second slice before the last rank has the first.
TEST(StreamOrder, SlicesOfAChainOverlap) {
  const auto all = sequences(line_broadcast(4, 0), line_broadcast(4, 0, true), false, shape(1000, 4, UINT64_MAX, 1));
  EXPECT_LT(all[0][2].level, all[3][0].level);
}

// A schedule with levels is put in order from itself alone, so the number of ranks does not matter.
TEST(StreamOrder, ARankOfFourThousandNeedsItsOwnScheduleOnly) {
  constexpr uint32_t ranks = 4096;
  Case one = ring_all_reduce(2);  // rank 1's schedule of a ring of 4,096
  Schedule& own = one.schedules[1];
  own.cuts = equal_cuts(ranks);
  own.flags |= TUTTI_SCHEDULE_SLICE_LEVELS(2 * ranks - 3);
  own.lanes[0].clear();
  for (uint32_t k = 1; k < 2 * ranks - 1; ++k) {
    const uint32_t piece = (2 * ranks - k) % ranks;
    for (Step made : {send(2, out(piece)), recv(0, out((piece + ranks - 1) % ranks))}) {
      made.op.level = k;
      own.lanes[0].push_back(made);
    }
  }
  std::vector<StreamStep> order;
  EXPECT_EQ(order_for_stream(own, shape(uint64_t{1} << 24, 4, 1 << 18, 8), &order), "");
  EXPECT_EQ(order.size(), 4 * own.lanes[0].size());
  EXPECT_LT(order.size() * sizeof order[0] + own.lanes[0].size() * sizeof own.lanes[0][0], 100u << 20);
}

// Both ranks send many messages before they receive one in lane order of nothing: only the room on the way orders them.
TEST(StreamOrder, RoomOnTheWayOrdersIndependentLanes) {
  constexpr uint32_t messages = 6;
  Case c = make_case(TUTTI_ALL_GATHER, 2);
  for (uint32_t r = 0; r < 2; ++r) {
    Schedule& s = c.schedules[r];
    s.cuts = equal_cuts(messages);
    s.lanes.resize(2);
    for (uint32_t i = 0; i < messages; ++i) {
      s.lanes[r].push_back(send(1 - r, in(i)));
      s.lanes[1 - r].push_back(recv(1 - r, out((1 - r) * messages + i)));
    }
    for (uint32_t i = 0; i < messages; ++i) s.lanes[r].push_back(copy(out(r * messages + i), in(i)));
  }
  for (const uint32_t slots : {1u, 2u, 4u}) {
    const auto all = sequences(c, c, false, shape(600, 1, 64, slots));
    EXPECT_EQ(left_over(c, c, false, all, slots), 0u) << slots;
  }
}

// Where receivers read what the sender has: whoever overwrites it may wait for them, since they come first on all
// ranks.
TEST(StreamOrder, WhatIsReadIsOverwrittenLater) {
  Case c = make_case(TUTTI_BROADCAST, 3);
  c.schedules[0].lanes = {{send(1, out(0)), copy(out(0), in(0)), send(2, out(0))}, {after(recv(2, out(0)), 0, 2)}};
  c.schedules[1].lanes = {{recv(0, out(0)), send(2, out(0))}};
  c.schedules[2].lanes = {{recv(1, out(0)), recv(0, out(0))}, {send(0, out(0))}};
  const auto all = sequences(c, c, false, shape(100, 1, UINT64_MAX, 32));
  const auto level = [&](uint32_t rank, uint32_t lane, uint32_t step) {
    for (const StreamStep& one : all[rank])
      if (one.lane == lane && one.step == step) return one.level;
    ADD_FAILURE() << "rank " << rank << " has no step " << step << " in lane " << lane;
    return uint64_t{0};
  };
  EXPECT_GT(level(0, 0, 1), level(1, 0, 0)) << "a copy, over what rank 1 reads";
  EXPECT_GT(level(0, 1, 0), level(2, 0, 1)) << "a receive, over what rank 2 reads";
}

TEST(StreamOrder, FragmentsCoverEachMessage) {
  const Case a = ring_all_reduce(2), b = ring_all_reduce(2, true);
  const auto all = sequences(a, b, false, shape(1001, 1, 256, 2));
  uint64_t sent = 0;
  for (const StreamStep& step : all[0])
    if (a.schedules[0].lanes[step.lane][step.step].op.kind == TUTTI_STEP_SEND) {
      EXPECT_LE(step.bytes, 256u);
      sent += step.bytes;
    }
  EXPECT_EQ(sent, 1001u * 4);
}

TEST(StreamOrder, EmptyStepsAreLeftOut) {
  const Case a = ring_all_reduce(8), b = ring_all_reduce(8, true);
  const auto all = sequences(a, b, false, shape(0, 1, 256, 2));
  for (const auto& sequence : all) EXPECT_TRUE(sequence.empty());
}

}  // namespace
}  // namespace tutti
