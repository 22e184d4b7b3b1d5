// SPDX-License-Identifier: Apache-2.0
//
// The generator, the rules and the shrinker, without running a program.
#include <gtest/gtest.h>
#include <tutti/plugin/types.h>

#include <algorithm>

#include "fuzz/generator.hpp"
#include "fuzz/legality.hpp"
#include "fuzz/shrinker.hpp"
#include "fuzz/themes.hpp"

namespace tutti::conformance::fuzz {
namespace {

constexpr uint64_t seeds = 50;

Choice everything() {
  Choice choice;
  choice.mixes = {"shm", "tcp", "shm+tcp", "chaos", "all"};
  return choice;
}

Choice only(const std::string& theme) {
  Choice choice = everything();
  choice.themes = {theme};
  return choice;
}

TEST(Generator, OneSeedIsOneProgram) {
  const Choice choice = everything();
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Program program = generate(seed, choice);
    EXPECT_EQ(to_text(program), to_text(generate(seed, choice)));
    EXPECT_NE(to_text(program), to_text(generate(seed + seeds, choice)));
  }
}

TEST(Generator, EveryThemeGivesLegalProgramsThatSayMuch) {
  for (const std::string& theme : theme_names()) {
    const Choice choice = only(theme);
    bool fault = false;
    for (uint64_t seed = 1; seed <= seeds; ++seed) {
      Program program = generate(seed, choice);
      EXPECT_EQ(program.theme, theme);
      EXPECT_EQ(illegal(program), "") << to_text(program);
      fault |= fault_of(program).event != nullptr;
      EXPECT_EQ(from_text(to_text(program)), program);
      Program tidied = program;
      tidy(tidied);
      EXPECT_EQ(to_text(tidied), to_text(program));
    }
    EXPECT_EQ(fault, theme_named(theme).ending != Ending::none) << theme;
  }
}

TEST(Generator, ThemesWithLongPausesNeedTime) {
  Choice choice = everything();
  choice.longest_sleep = 1;
  for (uint64_t seed = 1; seed <= seeds; ++seed) EXPECT_LE(sleeping_ms(generate(seed, choice)), 1000u);
  choice.themes = {"pause"};
  EXPECT_THROW(generate(1, choice), std::invalid_argument);
}

TEST(Text, WhatIsNoProgramIsRefusedWithItsLine) {
  const auto refusal = [](const std::string& text) -> std::string {
    try {
      from_text(text);
    } catch (const std::runtime_error& e) {
      return e.what();
    }
    return "";
  };
  const std::string head = "program ranks=1 process=0 host=0\n";
  EXPECT_EQ(refusal(head + "1 dance"), "line 2: there is no kind of event \"dance\"");
  EXPECT_EQ(refusal(head + "x make"), "line 2: \"x\" is not a number");
  EXPECT_EQ(refusal(head + "1 make comm"), "line 2: expected NAME=VALUE, got \"comm\"");
  EXPECT_EQ(refusal(head + "1 make comm=one"), "line 2: \"one\" is not a number");
  EXPECT_EQ(refusal(head + "1 make colour=red"), "line 2: an event has no field \"colour\"");
  EXPECT_EQ(refusal("program ranks=1 colour=red"), "line 1: a program has no field \"colour\"");
  EXPECT_EQ(refusal(head + "1 collective collective=all_confuse"), "line 2: there is no collective \"all_confuse\"");
}

// Two ranks; what follows breaks a rule.
struct Broken {
  const char* events;
  const char* rule;
};

TEST(Legality, EveryRuleHolds) {
  const std::string head = "program ranks=2 process=0,1 host=0,0\n1 make comm=1 members=0,1 text=file\n";
  EXPECT_EQ(illegal(from_text(head)), "");
  const Broken all[] = {
      {"1 sleep ms=1", "an event's id is unique"},
      {"2 sleep strand=1", "an event's strand is one of the program's"},
      {"2 make comm=1 members=0 text=file", "a communicator is made once"},
      {"2 make comm=2 members=1,0 text=file", "members ascend"},
      {"2 make comm=2 members=0,2 text=file", "members are ranks of the program, each once"},
      {"2 make comm=2 members=0 text=pigeon", "ranks meet in a known way"},
      {"2 make comm=2 members=0,1 text=local", "ranks that meet locally share a process"},
      {"2 make comm=2 members=0 text=env", "all ranks meet by the environment"},
      {"2 sleep ms=1 times=2", "a collective is called 1 to 1000 times, all else once"},
      {"2 collective collective=barrier comm=1 times=1001", "a collective is called 1 to 1000 times"},
      {"2 collective collective=barrier comm=2", "a communicator is made before it is used"},
      {"2 destroy comm=1\n3 collective collective=barrier comm=1", "a communicator is not used after its end"},
      {"2 collective comm=1", "a collective is one that there is"},
      {"2 collective collective=broadcast comm=1 type=int8 root=2", "a root is a rank of the communicator"},
      {"2 collective collective=broadcast comm=1 type=int7", "a type is one that there is"},
      {"2 collective collective=barrier comm=1\n3 make comm=2 members=0,1 text=callback",
       "a callback comes before anything that may be under way"},
      {"2 message comm=1 rank=0 peer=0 type=int8", "nobody sends to itself but in a group"},
      {"2 send comm=1 rank=0 peer=1 type=int8 link=3", "the first half of a message is asynchronous"},
      {"2 send comm=1 rank=0 peer=1 type=int8 link=3 asynchronous=1", "every send has its receive"},
      {"2 send comm=1 rank=0 peer=1 type=int8 link=3 asynchronous=1\n3 receive comm=1 rank=0 peer=1 type=int16 link=2",
       "both halves are of one message"},
      {"2 send comm=1 rank=0 peer=1 type=int8 link=4 asynchronous=1\n3 message comm=1 rank=0 peer=1 type=int8",
       "messages under way between two ranks have different tags"},
      {"2 send comm=1 rank=0 peer=1 type=int8 link=4 asynchronous=1\n3 wait rank=0 list=2 text=wait",
       "both halves of a message stand before the wait for it"},
      {"2 send comm=1 rank=0 peer=1 type=int8 link=4 asynchronous=1\n3 destroy comm=1",
       "both halves of a message stand before its communicator's end"},
      {"2 sleep ms=20001", "all sleeps together end before the connect timeout"},
      {"2 fork text=dance", "a child does something known"},
      {"2 kill rank=1", "all have met on a communicator before a rank dies"},
      {"2 collective collective=barrier comm=1\n3 kill rank=1\n4 make comm=2 members=0,1 text=file",
       "a dead rank meets nobody"},
      {"2 abort comm=1", "all have met before"},
      {"2 collective collective=barrier comm=1\n3 abort comm=1\n4 revoke comm=1", "a program has one fault at most"},
  };
  for (const Broken& one : all) {
    const std::string why = illegal(from_text(head + one.events));
    EXPECT_NE(why.find(one.rule), std::string::npos) << one.events << "\n" << why;
  }
}

TEST(Legality, OneSendFewerThanIsKeptAhead) {
  std::string text = "program ranks=2 process=0,1 host=0,0\n1 make comm=1 members=0,1 text=file\n", receives;
  for (uint32_t i = 0; i < most_sends_ahead + 1; ++i) {
    EXPECT_EQ(illegal(from_text(text + receives)), "");
    const std::string of = " comm=1 rank=0 peer=1 type=int8 tag=" + std::to_string(i);
    text += std::to_string(100 + i) + " send asynchronous=1 link=" + std::to_string(300 + i) + of + "\n";
    receives += std::to_string(300 + i) + " receive link=" + std::to_string(100 + i) + of + "\n";
  }
  EXPECT_NE(illegal(from_text(text + receives)).find("a receiver keeps so many sends"), std::string::npos);
}

// The planted failure: a rank sleeps after a blocking reduction on a communicator of two ranks or more.
bool fails(const Program& program) {
  bool reduced = false;
  for (const Event& e : program.events) {
    reduced |= e.kind == Kind::collective && e.collective == TUTTI_ALL_REDUCE && e.asynchronous == 0 &&
               members_of(program, e.comm).size() >= 2;
    if (reduced && e.kind == Kind::sleep) return true;
  }
  return false;
}

TEST(Shrinker, APlantedFailureIsMadeAsSmallAsItCanBe) {
  const Choice choice = only("mixed");
  uint32_t tried = 0;
  const Examine examine = [](const std::vector<Program>& candidates) {
    for (size_t i = 0; i < candidates.size(); ++i) {
      EXPECT_EQ(illegal(candidates[i]), "");
      if (fails(candidates[i])) return static_cast<int>(i);
    }
    return -1;
  };
  for (uint64_t seed = 1; seed <= seeds; ++seed) {
    const Program program = generate(seed, choice);
    if (!fails(program)) continue;
    ++tried;
    const Program small = shrink(program, examine, [] { return true; });
    EXPECT_TRUE(fails(small));
    EXPECT_EQ(small.events.size(), 3u) << to_text(small);
    EXPECT_EQ(small.ranks, 2u);
    EXPECT_EQ(small.strands, 1u);
    EXPECT_TRUE(small.settings.empty());
  }
  EXPECT_GE(tried, 5u);
}

TEST(Shrinker, EndsWhenToldTo) {
  const Program program = generate(1, only("mixed"));
  int left = 3;
  const Examine never = [](const std::vector<Program>&) { return -1; };
  EXPECT_EQ(shrink(program, never, [&] { return left-- > 0; }), program);
  EXPECT_LT(left, 1);
}

}  // namespace
}  // namespace tutti::conformance::fuzz
