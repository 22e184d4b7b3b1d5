// SPDX-License-Identifier: Apache-2.0
#include "engine/plan.hpp"

#include <gtest/gtest.h>

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

}  // namespace
}  // namespace tutti::core
