// SPDX-License-Identifier: Apache-2.0
//
// The samples are read, and their schedules are proved by the core.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <bit>
#include <map>
#include <set>

#include "imported.hpp"

namespace tutti::test {
namespace {

uint32_t collective_of(const tutti_algorithm& algorithm) {
  return static_cast<uint32_t>(std::countr_zero(algorithm.collectives));
}

// The ranks and the root that a plan is for, which its answers tell.
bool find_problem(const tutti_algorithm& algorithm, Problem& problem) {
  problem.collective = collective_of(algorithm);
  for (problem.nranks = 1; problem.nranks <= 16; ++problem.nranks)
    for (problem.root = 0; problem.root < (has_root(problem.collective) ? problem.nranks : 1); ++problem.root) {
      const tutti_query query = make_query(problem, 0);
      if (algorithm.supports(algorithm.self, &query) == TUTTI_OK) return true;
    }
  return false;
}

TEST(Samples, AreProvedByTheCore) {
  const auto all = import(SAMPLES);
  ASSERT_FALSE(all.empty()) << import_error;
  for (const tutti_algorithm* algorithm : all) {
    Problem problem;
    ASSERT_TRUE(find_problem(*algorithm, problem)) << algorithm->name;
    for (const uint32_t lanes : {8u, 1u}) {
      problem.lanes = lanes;
      const Proof proof = verify_algorithm(*algorithm, problem);
      EXPECT_TRUE(proof.ok()) << algorithm->name << ", " << problem.nranks << " ranks: " << proof.error;
    }
    std::vector<Schedule> schedules;
    ASSERT_EQ(build_schedules(*algorithm, problem, &schedules, nullptr), TUTTI_OK);
    for (const Schedule& schedule : schedules)
      EXPECT_TRUE(schedule.sliced() && schedule.has_levels()) << algorithm->name;
  }
}

TEST(Samples, OneOfEachCollectiveThatPlansHave) {
  std::set<uint32_t> collectives;
  for (const tutti_algorithm* algorithm : import(SAMPLES)) collectives.insert(collective_of(*algorithm));
  EXPECT_EQ(collectives, (std::set<uint32_t>{TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_GATHER,
                                             TUTTI_ALL_GATHER, TUTTI_SCATTER, TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL}));
}

// Three thread blocks of a group move a third of each chunk.
TEST(Samples, SharesOfAGroupOfThreadBlocks) {
  std::string text = content(std::string(SAMPLES) + "/all_gather.json");
  const std::string begin = "{\"name\": \"put\",";
  for (size_t at = 0; (at = text.find(begin, at)) != text.npos;) {
    const size_t rest = at + begin.size(), end = text.find('}', text.find("\"channel_type\"", at)) + 1;
    std::string shares;
    for (const char* share : {"0", "1", "2"})
      shares += (shares.empty() ? "" : ",\n") + begin + " \"tbg_info\": {\"tb_id\": " + share + ", \"tbg_size\": 3}," +
                text.substr(rest, end - rest);
    text.replace(at, end - at, shares);
    at += shares.size();
  }
  const auto all = import(write_plan("shares.json", text));
  ASSERT_EQ(all.size(), 1u) << import_error;
  const Proof proof = verify_algorithm(*all[0], {.collective = TUTTI_ALL_GATHER, .nranks = 3});
  EXPECT_TRUE(proof.ok()) << proof.error;
  EXPECT_EQ(proof.messages, 18u);
}

TEST(Samples, OtherRanksAndRootsAreRefusedWithTheReason) {
  const auto all = import(std::string(SAMPLES) + "/broadcast.xml");
  ASSERT_EQ(all.size(), 1u) << import_error;
  Problem problem{.collective = TUTTI_BROADCAST, .nranks = 4};
  tutti_query query = make_query(problem, 0);
  EXPECT_EQ(all[0]->supports(all[0]->self, &query), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(import_error.find("is a plan for 3 ranks, and these are 4"), std::string::npos) << import_error;
  problem.nranks = 3;
  query = make_query(problem, 0);
  EXPECT_EQ(all[0]->supports(all[0]->self, &query), TUTTI_NOT_SUPPORTED);
  EXPECT_NE(import_error.find("is a plan for root 1, and this is 0"), std::string::npos) << import_error;
}

}  // namespace
}  // namespace tutti::test
