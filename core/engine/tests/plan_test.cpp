// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan.hpp"

#include <gtest/gtest.h>

#include <algorithm>

namespace tutti::core {
namespace {

TEST(ScratchNeed, IsTheSumOfItsChunks) {
  Schedule schedule;
  schedule.cuts = {{1, 2}};
  schedule.scratch = {{0, 0}, {0, 1}, {0, 1}};
  EXPECT_EQ(scratch_need(schedule, 11, 4, 1), (5 + 6 + 6) * 4u);
  schedule.scratch_copies = 2;
  schedule.flags = TUTTI_SCHEDULE_SLICED;
  EXPECT_EQ(scratch_need(schedule, 11, 4, 4), 2 * 3 * 64u) << "each slot of a copy begins at a multiple of 64";
}

TEST(ScratchNeed, MoreThanThereAreNumbersIsTheLargest) {
  Schedule schedule;
  schedule.scratch.assign(1 << 20, tutti_extent{0, 0});
  constexpr uint64_t count = uint64_t{1} << 50;
  EXPECT_EQ(scratch_need(schedule, count, 1, 1), UINT64_MAX);
  schedule.scratch.assign(1 << 10, tutti_extent{0, 0});
  EXPECT_EQ(scratch_need(schedule, count, 16, 1), UINT64_MAX);
  schedule.scratch.assign(1 << 12, tutti_extent{0, 0});
  schedule.scratch_copies = 4;
  EXPECT_EQ(scratch_need(schedule, count, 16, 8), UINT64_MAX);
  EXPECT_EQ(scratch_need(schedule, count, 1, 8), 4 * (uint64_t{1} << 59));
}

// Slices of a run are slices of each of its chunks: together they are every byte of the run once, at its place.
TEST(BindPlan, SlicesOfARun) {
  for (const uint64_t count : {0u, 1u, 7u, 100u, 1001u})
    for (const uint64_t slices : {1u, 2u, 3u, 8u})
      for (const uint32_t copies : {0u, 2u}) {
        Schedule schedule;
        schedule.flags = TUTTI_SCHEDULE_SLICED;
        schedule.cuts = {{1, 4}, {1, 3}};
        schedule.scratch = {{0, 2}, {0, 0}, {0, 1}};
        schedule.scratch_copies = copies;
        Step step;
        step.op.kind = TUTTI_STEP_COPY;
        step.op.dependency_lane = TUTTI_NO_DEPENDENCY;
        step.op.dst = {TUTTI_BUFFER_SCRATCH, 1, 2, 0};
        step.op.src = {TUTTI_BUFFER_IN, 0, 2, 0};
        schedule.lanes = {{step}};
        Shape shape;
        shape.collective = TUTTI_BROADCAST;
        shape.dtype = TUTTI_INT32;
        shape.count = count;
        std::vector<Link> links(2);
        const Plan plan = bind_plan(schedule, shape, slices, 2, 0, links);
        const BoundStep& bound = plan.lanes[0][0];
        ASSERT_EQ(bound.src.parts, slices == 1 ? 0u : 2u);
        ASSERT_EQ(bound.dst.parts, bound.src.parts);
        std::vector<int> touched(count * 4, 0);
        for (uint64_t slice = 0; slice < slices; ++slice) {
          std::vector<std::pair<uint64_t, uint64_t>> room;  // of this slice's copy of the scratch
          for (uint32_t part = 0; part < std::max(1u, bound.src.parts); ++part) {
            const Piece from = piece_of(plan, part_of(plan, bound.src, part), slice);
            const Piece to = piece_of(plan, part_of(plan, bound.dst, part), slice);
            EXPECT_EQ(from.bytes, to.bytes);
            EXPECT_LE(to.offset + to.bytes, plan.scratch.bytes);
            for (uint64_t i = from.offset; i < from.offset + from.bytes; ++i) ++touched.at(i);
            for (const auto& [begin, end] : room) EXPECT_TRUE(to.offset >= end || to.offset + to.bytes <= begin);
            room.emplace_back(to.offset, to.offset + to.bytes);
          }
        }
        for (uint64_t i = 0; i < touched.size(); ++i)
          EXPECT_EQ(touched[i], i < count / 3 * 4 ? 1 : 0) << count << " elements, " << slices << " slices, byte " << i;
      }
}

// A block of one element has nothing in its first half. Calls that move nothing at all have links.
TEST(BindPlan, EmptyMessagesNeedNoLink) {
  Schedule schedule;
  schedule.cuts = {{1, 2}};
  for (const uint32_t peer : {1u, 2u}) {
    Step step;
    step.op.kind = TUTTI_STEP_SEND;
    step.op.dependency_lane = TUTTI_NO_DEPENDENCY;
    step.op.peer = peer;
    step.op.src = {TUTTI_BUFFER_IN, peer - 1, 1, 0};
    schedule.lanes.push_back({step});
  }
  Shape shape;
  shape.collective = TUTTI_ALL_REDUCE;
  shape.dtype = TUTTI_INT32;
  shape.op = TUTTI_SUM;
  tutti_transport transport{};
  transport.name = "net";
  Port port;
  port.api = &transport;
  std::vector<Link> links(3);
  for (Link& link : links) link.port = &port;
  const auto used = [&](uint64_t count) {
    shape.count = count;
    return bind_plan(schedule, shape, 1, 3, 0, links).links;
  };
  EXPECT_EQ(used(0), (std::vector{&links[1], &links[2]}));
  EXPECT_EQ(used(1), (std::vector{&links[2]}));
  EXPECT_EQ(used(2), (std::vector{&links[1], &links[2]}));
}

// A step has to follow the last one that touches a chunk of its own, one of the two writing. Random lanes, compared
// with the plain definition.
TEST(BindPlan, StepsFollowTheLastThatConflicts) {
  uint64_t state = 1;
  const auto random = [&](uint64_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<uint32_t>((state >> 33) % below);
  };
  for (uint32_t trial = 0; trial < 200; ++trial) {
    const uint32_t copies = random(3), n = 1 + random(12);
    const uint64_t slices = 1 + random(5);
    Schedule schedule;
    schedule.flags = TUTTI_SCHEDULE_SLICED;
    schedule.cuts = {{1, 4}, {1, 2}, {3, 4}};
    schedule.scratch = {{0, 0}, {0, 1}, {0, 2}, {0, 3}};
    schedule.scratch_copies = copies;
    schedule.lanes.resize(1);
    const auto span = [&](uint32_t buffer) {
      const uint32_t first = random(4);
      return tutti_span{buffer, first, 1 + random(4 - first), 0};
    };
    for (uint32_t i = 0; i < n; ++i) {
      Step& step = schedule.lanes[0].emplace_back();
      step.op.kind = TUTTI_STEP_COPY;
      step.op.dependency_lane = TUTTI_NO_DEPENDENCY;
      step.op.src = span(1 + random(3));
      step.op.dst = span(2 + random(2));
    }
    Shape shape;
    shape.collective = TUTTI_ALL_REDUCE;
    shape.dtype = TUTTI_INT32;
    shape.op = TUTTI_SUM;
    shape.count = 64;
    shape.in_place = random(2);
    std::vector<Link> links(2);
    const Plan plan = bind_plan(schedule, shape, slices, 2, 0, links);
    const auto touch = [&](const tutti_span& a, const tutti_span& b) {
      const auto place = [&](const tutti_span& s) {
        return shape.in_place && s.buffer == TUTTI_BUFFER_IN ? uint32_t{TUTTI_BUFFER_OUT} : s.buffer;
      };
      return place(a) == place(b) && a.first < b.first + b.chunks && b.first < a.first + a.chunks;
    };
    const auto conflict = [&](const tutti_step& a, const tutti_step& b, bool scratch) {
      const auto asked = [&](const tutti_span& mine) { return !scratch || mine.buffer == TUTTI_BUFFER_SCRATCH; };
      return (asked(a.dst) && (touch(a.dst, b.dst) || touch(a.dst, b.src))) || (asked(a.src) && touch(a.src, b.dst));
    };
    for (uint32_t i = 0; i < n; ++i) {
      const auto& steps = schedule.lanes[0];
      uint32_t expected = 0;
      for (uint32_t back = 1; back <= i && !expected; ++back)
        if (conflict(steps[i].op, steps[i - back].op, false)) expected = back;
      for (uint32_t j = n; copies && slices > copies && j-- > 0 && !expected;)
        if (conflict(steps[i].op, steps[j].op, true)) expected = copies * n + i - j;
      EXPECT_EQ(plan.lanes[0][i].after_conflict, expected) << "trial " << trial << ", step " << i;
    }
  }
}

}  // namespace
}  // namespace tutti::core
