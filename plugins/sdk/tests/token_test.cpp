// SPDX-License-Identifier: Apache-2.0
//
// Tokens differ, and are compared byte by byte.
#include <gtest/gtest.h>

#include <array>
#include <set>
#include <tutti/sdk/token.hpp>

namespace {

using Token = std::array<uint8_t, 16>;

TEST(Token, RandomOnesDiffer) {
  std::set<Token> seen;
  for (int i = 0; i < 1000; ++i) {
    Token token{};
    tutti::sdk::fill_random(token);
    EXPECT_TRUE(seen.insert(token).second);
  }
}

TEST(Token, EveryByteCounts) {
  Token token{};
  tutti::sdk::fill_random(token);
  EXPECT_TRUE(tutti::sdk::same_bytes(token, Token(token)));
  for (size_t i = 0; i < token.size(); ++i) {
    Token other = token;
    other[i] ^= 0x80;
    EXPECT_FALSE(tutti::sdk::same_bytes(token, other)) << i;
  }
  EXPECT_FALSE(tutti::sdk::same_bytes(token, std::span(token).first(15)));
}

}  // namespace
