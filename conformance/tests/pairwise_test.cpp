// SPDX-License-Identifier: Apache-2.0
#include "matrix/pairwise.hpp"

#include <gtest/gtest.h>

#include <set>
#include <tuple>

namespace tutti::conformance {
namespace {

bool everything(uint32_t, uint32_t, uint32_t, uint32_t) { return true; }

// The pairs that the rows hold, each once.
std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> pairs_in(const std::vector<std::vector<uint32_t>>& rows) {
  std::set<std::tuple<uint32_t, uint32_t, uint32_t, uint32_t>> found;
  for (const auto& row : rows)
    for (uint32_t a = 0; a < row.size(); ++a)
      for (uint32_t b = a + 1; b < row.size(); ++b) found.insert({a, row[a], b, row[b]});
  return found;
}

TEST(Pairwise, MeetsEveryPairInFewRows) {
  const Factors factors{12, 7, 5, 4, 3, 3, 2};
  const auto rows = cover_pairs(factors, everything, 1);
  const auto found = pairs_in(rows);
  size_t all = 0;
  for (size_t a = 0; a < factors.size(); ++a)
    for (size_t b = a + 1; b < factors.size(); ++b) all += factors[a] * factors[b];
  EXPECT_EQ(found.size(), all);
  EXPECT_GE(rows.size(), 84u);  // the two largest factors alone need so many
  EXPECT_LE(rows.size(), 110u);
}

TEST(Pairwise, KeepsConstraintsAndMeetsAllPairsThatTheyLeave) {
  // Value 0 of factor 0 goes with value 0 of factor 1 only; value 1 of factor 0 never with value 2 of factor 2.
  const Factors factors{3, 3, 3, 4};
  const Allowed allowed = [](uint32_t a, uint32_t va, uint32_t b, uint32_t vb) {
    if (a == 0 && va == 0 && b == 1) return vb == 0;
    if (a == 0 && va == 1 && b == 2) return vb != 2;
    return true;
  };
  const auto rows = cover_pairs(factors, allowed, 3);
  for (const auto& row : rows)
    for (uint32_t a = 0; a < row.size(); ++a)
      for (uint32_t b = a + 1; b < row.size(); ++b) EXPECT_TRUE(allowed(a, row[a], b, row[b]));
  EXPECT_EQ(pairs_in(rows).size(), 3u * 3 - 2 + 3 * 3 - 1 + 3 * 4 + 3 * 3 + 3 * 4 + 3 * 4);
}

TEST(Pairwise, LeavesOutAPairThatNoRowCanHold) {
  // Factor 0 has one value, which goes with value 0 of factors 1 and 2 only: so 1 and 1 of these never meet.
  const Allowed allowed = [](uint32_t a, uint32_t, uint32_t b, uint32_t vb) { return a != 0 || b > 2 || vb == 0; };
  const auto rows = cover_pairs({1, 2, 2}, allowed, 3);
  EXPECT_EQ(rows, (std::vector<std::vector<uint32_t>>{{0, 0, 0}}));
}

TEST(Pairwise, IsTheSameForASeed) {
  EXPECT_EQ(cover_pairs({5, 4, 3, 3}, everything, 9), cover_pairs({5, 4, 3, 3}, everything, 9));
}

TEST(Pairwise, AnEmptyFactorOrASingleOne) {
  EXPECT_TRUE(cover_pairs({3, 0}, everything, 1).empty());
  EXPECT_TRUE(cover_pairs({3}, everything, 1).empty());
}

}  // namespace
}  // namespace tutti::conformance
