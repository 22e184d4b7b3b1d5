// SPDX-License-Identifier: Apache-2.0
//
// The SDK's schedule builder: the README's sample, and what it refuses.
#include <gtest/gtest.h>

#include "interpreter.hpp"
#include "plugin_under_test.hpp"
#include "sdk_readme_sample.hpp"

namespace tutti::test {
namespace {

TEST(Builder, ReadmeSampleWorks) {
  for (const uint32_t n : {1u, 2u})
    for (const uint64_t count : {0u, 1u, 2u, 1000u})
      for (const uint64_t in_place : {0u, 1u, 3u})
        EXPECT_EQ(run(pairs, {.collective = TUTTI_ALL_REDUCE, .n = n, .count = count, .in_place = in_place}), "")
            << n << " ranks, count " << count << ", in place " << in_place;
  algorithms();  // gives the SDK its host, for last_error()
  EXPECT_NE(run(pairs, {.collective = TUTTI_ALL_REDUCE, .n = 3}), "");
  EXPECT_EQ(last_error(), "pairs: all_reduce: is for 2 ranks at most");
}

// An all_reduce that does what `Body` says.
template <void (*Body)(const sdk::Query&, sdk::Schedule&)>
struct Wrong {
  static constexpr const char* name = "wrong";
  static constexpr const char* summary = "misuses the builder";
  static constexpr uint64_t collectives = sdk::mask({TUTTI_ALL_REDUCE});
  static void schedule(const sdk::Query& q, sdk::Schedule& s) { Body(q, s); }
};
// The answer to the core when it asks for such a schedule.
template <void (*Body)(const sdk::Query&, sdk::Schedule&)>
std::string refusal() {
  algorithms();
  const tutti_algorithm table = sdk::make_algorithm<Wrong<Body>>();
  EXPECT_EQ(run(table, {.collective = TUTTI_ALL_REDUCE, .n = 2}), "wrong answered status -11");
  return last_error();
}

void names_own_lane(const sdk::Query& q, sdk::Schedule& s) {
  const sdk::StepId first = s.lane().wait(q.next());
  s.lane().signal(q.next()).after(first);
}
void speaks_too_late(const sdk::Query& q, sdk::Schedule& s) {
  auto step = s.lane().recv(q.next(), sdk::out());
  s.lane().send(q.next(), sdk::in());
  step.final();
}
void wants_a_third_lane(const sdk::Query&, sdk::Schedule& s) { s.lane(2); }

TEST(Builder, RefusesMisuse) {
  EXPECT_EQ(
      refusal<names_own_lane>(),
      "lane 0 step 1: a dependency must name a step of another lane, not step 0 of its own; put a nop() between them");
  EXPECT_EQ(refusal<speaks_too_late>(), "lane 0 step 0 was changed after the next step had been added");
  EXPECT_EQ(refusal<wants_a_third_lane>(),
            "lane 2 was asked for, but only 2 may be used; supports() should have said so");
}

TEST(Builder, SetsLoadWhereInputIsRead) {
  const auto loads = [](const char* name, const Case& c) {
    std::string text;
    const Schedule schedule = emit(*find_algorithm(name), c, 0);
    for (const Step& step : schedule.lanes.at(0)) text += step.op.flags & TUTTI_STEP_LOAD ? 'L' : '-';
    return text;
  };
  EXPECT_EQ(loads("ring", {.collective = TUTTI_ALL_REDUCE, .n = 3}), "LL-L----");  // S R S R S, R S R
  EXPECT_EQ(loads("ring", {.collective = TUTTI_ALL_GATHER, .n = 3}), "-----");
  EXPECT_EQ(loads("direct", {.collective = TUTTI_ALL_REDUCE, .n = 3}), "L-L-L");
}

TEST(CyclicRun, SplitsWhereItPassesTheEnd) {
  const auto text = [](uint32_t first, uint32_t count, uint32_t n) {
    std::string parts;
    for (const sdk::Run& run : sdk::CyclicRun(first, count, n))
      parts += std::to_string(run.first) + "+" + std::to_string(run.count) + "@" + std::to_string(run.offset) + " ";
    return parts;
  };
  EXPECT_EQ(text(2, 3, 5), "2+3@0 ");
  EXPECT_EQ(text(3, 4, 5), "3+2@0 0+2@2 ");
  EXPECT_EQ(text(0, 5, 5), "0+5@0 ");
  EXPECT_EQ(text(4, 0, 5), "");
}

}  // namespace
}  // namespace tutti::test
