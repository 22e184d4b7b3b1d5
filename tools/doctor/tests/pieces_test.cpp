// SPDX-License-Identifier: Apache-2.0
#include "pieces.hpp"

#include <gtest/gtest.h>

#include <algorithm>
#include <thread>

namespace doctor {
namespace {

std::string text_of(uint64_t bytes, uint32_t rank) {
  std::string text;
  while (text.size() < bytes) text += "rank " + std::to_string(rank) + " has " + std::to_string(text.size()) + ", ";
  text.resize(bytes);
  return text;
}

// Each rank's text has another length: none, a piece and a byte less or more, many pieces.
TEST(Pieces, TextsOfAnyLengthComeWhole) {
  const std::vector<uint64_t> bytes{1000, 0, piece_bytes - 1, piece_bytes, piece_bytes + 1, 25 * piece_bytes + 7};
  const std::vector<uint32_t> told{2, 5};
  const auto nranks = static_cast<uint32_t>(bytes.size());
  std::vector<std::thread> ranks;
  for (uint32_t rank = 0; rank < nranks; ++rank)
    ranks.emplace_back([&, rank] {
      const tutti::Communicator world("local:pieces", rank, nranks);
      const std::vector<std::string> all = gather(world, text_of(bytes[rank], rank));
      ASSERT_EQ(all.size(), rank == 0 ? nranks : 0u);
      for (uint32_t r = 0; r < all.size(); ++r) EXPECT_EQ(all[r], text_of(bytes[r], r));
      if (rank != 0 && std::ranges::count(told, rank) == 0) return;
      for (const uint64_t size : bytes)
        EXPECT_EQ(tell(world, rank == 0 ? text_of(size, 9) : "not used", told), text_of(size, 9));
    });
  for (std::thread& rank : ranks) rank.join();
}

}  // namespace
}  // namespace doctor
