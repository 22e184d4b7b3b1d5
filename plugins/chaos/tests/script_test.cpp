// SPDX-License-Identifier: Apache-2.0
#include "script.hpp"

#include <gtest/gtest.h>

#include <exception>

namespace tutti::chaos {
namespace {

std::string refusal(const std::string& text) {
  try {
    parse(text, "TUTTI_CHAOS");
  } catch (const std::exception& e) {
    return e.what();
  }
  return {};
}

TEST(Script, SaysWhatWasWritten) {
  const Script script = parse("delay:p=0.1,us=200; lose:rank=1,after=5,min=64 ;stop", "TUTTI_CHAOS");
  ASSERT_EQ(script.size(), 3u);
  EXPECT_EQ(script[0].kind, Kind::delay);
  EXPECT_DOUBLE_EQ(script[0].p, 0.1);
  EXPECT_EQ(script[0].us, 200u);
  EXPECT_EQ(script[0].count, 0u) << "what the contract allows goes on";
  EXPECT_EQ(script[1].kind, Kind::lose);
  EXPECT_EQ(script[1].rank, 1u);
  EXPECT_EQ(script[1].after, 5u);
  EXPECT_EQ(script[1].min, 64u);
  EXPECT_EQ(script[1].count, 1u) << "what it forbids happens once";
  EXPECT_FALSE(script[1].peer);
  EXPECT_EQ(script[2].kind, Kind::stop);
}

TEST(Script, LinesAndCommentsSeparate) {
  EXPECT_TRUE(parse("", "x").empty());
  EXPECT_TRUE(parse("# nothing\n\n ;; \n", "x").empty());
  const Script script = parse("slow:us=5 # rank 2 is tired\nshort:p=1\n", "x");
  ASSERT_EQ(script.size(), 2u);
  EXPECT_EQ(script[0].us, 5u);
  EXPECT_EQ(script[1].kind, Kind::short_progress);
}

TEST(Script, ItsTextGivesTheSameAgain) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const std::string text = text_of(random_script(seed));
    EXPECT_EQ(text_of(parse(text, "x")), text);
    for (const Fault& fault : random_script(seed)) EXPECT_TRUE(allowed(fault.kind)) << text;
  }
  const char* all = "lose:p=0.25,after=1,count=2,rank=3,peer=4,lane=5,min=6,control=1;delay:us=0,pair=1";
  EXPECT_EQ(text_of(parse(all, "x")),
            "lose:p=0.25,after=1,count=2,rank=3,peer=4,lane=5,min=6,control=1;delay:p=1,us=0,pair=1");
}

TEST(Script, RefusalsNameThePlaceAndWhatIsKnown) {
  const std::pair<const char*, const char*> wrong[] = {
      {"dely:p=0.1",
       "TUTTI_CHAOS, line 1, character 1: \"dely\" is no fault; there are: delay, reorder, partial, "
       "short, slow, lose, duplicate, corrupt, stop, disconnect"},
      {"slow;delay:q=1",
       "character 12: \"q\" is no key of delay; it has: p, after, count, rank, peer, lane, min, us, pair"},
      {"slow:peer=1", "\"peer\" is no key of slow"},
      {"delay:us=10", ""},
      {"delay:us", "character 9: expected \"=\" and a value after \"us\""},
      {"delay:us=", "us is \"\", expected a whole number"},
      {"delay:us=-3", "us is \"-3\""},
      {"delay:us=99999999", "from 0 to 10000000"},
      {"delay:p=1.5", "p is \"1.5\", expected a number from 0 to 1"},
      {"delay:p=nan", "p is \"nan\""},
      {"delay slow", "character 7: expected \";\" before the next fault"},
      {"slow\n  lose:p=x", "line 2, character 10: p is \"x\""},
      {":p=1", "\"\" is no fault"},
      {"lose:control=2", "from 0 to 1"},
      {"reorder:pair=1", "\"pair\" is no key of reorder"},
  };
  for (const auto& [text, expected] : wrong) {
    const std::string got = refusal(text);
    EXPECT_NE(got.find(expected), std::string::npos) << text << " gives: " << got;
    EXPECT_EQ(got.empty(), *expected == '\0') << text;
  }
}

}  // namespace
}  // namespace tutti::chaos
