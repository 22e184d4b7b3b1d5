// SPDX-License-Identifier: Apache-2.0
#include "base/rank_list.hpp"

#include <gtest/gtest.h>

namespace tutti::core {

TEST(RankList, NamesRuns) {
  EXPECT_EQ(rank_list({}), "no rank");
  EXPECT_EQ(rank_list({3}), "rank 3");
  EXPECT_EQ(rank_list({3, 4}), "ranks 3 and 4");
  EXPECT_EQ(rank_list({1, 2, 3, 7}), "ranks 1-3 and 7");
  EXPECT_EQ(rank_list({0, 5, 6, 7, 9}), "ranks 0, 5-7 and 9");
}

TEST(RankList, CountsWhatIsTooMuch) {
  std::vector<uint32_t> odd;
  for (uint32_t r = 1; r < 200; r += 2) odd.push_back(r);
  EXPECT_EQ(rank_list(odd), "ranks 1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31 and 84 more");
}

}  // namespace tutti::core
