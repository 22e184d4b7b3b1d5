// SPDX-License-Identifier: Apache-2.0
//
// post_in_order: no accepted transfer is lost, whatever a later one does.
#include <gtest/gtest.h>

#include <array>
#include <tutti/sdk/endpoint.hpp>
#include <vector>

namespace {

using tutti::sdk::Error;
using tutti::sdk::post_in_order;

std::array<tutti_transfer, 4> numbered() {
  std::array<tutti_transfer, 4> transfers{};
  for (size_t i = 0; i < transfers.size(); ++i) transfers[i].cookie = i;
  return transfers;
}

TEST(PostInOrder, WhatTakeThrowsWaitsUntilItsTransferIsTheFirst) {
  const auto transfers = numbered();
  std::vector<uint64_t> taken;
  const auto take = [&](const tutti_transfer& t) {
    if (t.cookie == 2) throw Error(TUTTI_MISMATCH, "never");
    taken.push_back(t.cookie);
    return true;
  };
  const std::span all(transfers);
  EXPECT_EQ(post_in_order(all, take), 2u);
  EXPECT_EQ(taken, (std::vector<uint64_t>{0, 1}));
  EXPECT_THROW(post_in_order(all.subspan(2), take), Error);
  EXPECT_EQ(post_in_order(all.subspan(3), take), 1u);
  EXPECT_EQ(taken, (std::vector<uint64_t>{0, 1, 3}));
}

TEST(PostInOrder, StopsWhereThereIsNoRoom) {
  const auto transfers = numbered();
  EXPECT_EQ(post_in_order(std::span(transfers), [](const tutti_transfer& t) { return t.cookie < 3; }), 3u);
}

}  // namespace
