// SPDX-License-Identifier: Apache-2.0
//
// Every algorithm of the plugin, proved by the core's verifier: for each n up to 64, every root up to 16 ranks and
// roots 0, 1 and n-1 beyond, out of place, in place and mixed. A proof holds for every count, data type and slice
// count.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <chrono>
#include <cstddef>
#include <cstdio>
#include <set>

#include "plugin_under_test.hpp"

namespace tutti::test {
namespace {

std::set<uint32_t> roots(uint32_t collective, uint32_t n) {
  std::set<uint32_t> list{0};
  if (!has_root(collective)) return list;
  if (n > 16) return {0, 1, n - 1};
  for (uint32_t root = 1; root < n; ++root) list.insert(root);
  return list;
}

class Proofs : public testing::TestWithParam<Offer> {};

TEST_P(Proofs, HoldUpTo64Ranks) {
  const Offer offer = GetParam();
  const auto start = std::chrono::steady_clock::now();
  uint64_t steps = 0;
  for (uint32_t n = 1; n <= 64; ++n)
    for (const uint32_t root : roots(offer.collective, n)) {
      const Proof proof =
          verify_algorithm(*offer.algorithm, {.collective = offer.collective, .nranks = n, .root = root});
      ASSERT_TRUE(proof.ok()) << "n " << n << ", root " << root << ": " << fault_name(proof.fault) << ": "
                              << proof.error;
      ASSERT_TRUE(proof.same_tree || offer.collective != TUTTI_ALL_REDUCE) << "n " << n;
      Schedule own;
      std::string error;
      const Problem problem{.collective = offer.collective, .nranks = n, .root = root};
      ASSERT_EQ(build_schedule(*offer.algorithm, make_query(problem, n - 1), &own, &error), TUTTI_OK) << error;
      const std::string name = offer_name(offer);
      ASSERT_EQ(own.sliced(), name != "tree_gather" && !name.starts_with("doubling_reduce_scatter"));
      ASSERT_TRUE(own.has_levels() || n == 1) << "n " << n;
      ASSERT_GE(proof.bytes_sent, proof.bytes_lower_bound * (1 - 1e-9)) << "n " << n << ", root " << root;
      steps += proof.steps;
    }
  const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
  std::printf("  %-24s %8llu steps, %.2f s\n", offer_name(offer).c_str(), static_cast<unsigned long long>(steps),
              spent.count());
}

INSTANTIATE_TEST_SUITE_P(All, Proofs, testing::ValuesIn(offers()),
                         [](const testing::TestParamInfo<Offer>& offer) { return offer_name(offer.param); });

Proof prove(const char* algorithm, uint32_t collective, uint32_t n, uint32_t root = 0) {
  return verify_algorithm(*find_algorithm(algorithm), {.collective = collective, .nranks = n, .root = root});
}

TEST(Claims, FewestBytes) {
  for (const uint32_t n : {2u, 3u, 7u, 8u, 33u}) {
    for (const char* name : {"ring", "halving"}) {
      const Proof proof = prove(name, TUTTI_ALL_REDUCE, n);
      EXPECT_NEAR(proof.bytes_sent, 2.0 * (n - 1) / n, 1e-9) << name << " " << n;
      EXPECT_NEAR(proof.bytes_sent, proof.bytes_lower_bound, 1e-9) << name << " " << n;
    }
    for (const uint32_t collective : {TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER})
      for (const char* name : {"ring", "direct", "doubling"}) {
        const Proof proof = prove(name, collective, n);
        EXPECT_NEAR(proof.bytes_sent, n - 1, 1e-9) << name << " " << n;
        EXPECT_NEAR(proof.bytes_sent, proof.bytes_lower_bound, 1e-9) << name << " " << n;
      }
  }
}

TEST(Claims, RankOrder) {
  EXPECT_TRUE(prove("direct", TUTTI_ALL_REDUCE, 7).rank_order);
  EXPECT_TRUE(prove("direct", TUTTI_REDUCE, 7, 3).rank_order);
  EXPECT_TRUE(prove("doubling", TUTTI_ALL_REDUCE, 7).rank_order);
  EXPECT_TRUE(prove("tree", TUTTI_ALL_REDUCE, 7).rank_order);
  EXPECT_TRUE(prove("tree", TUTTI_REDUCE, 7).rank_order);
  EXPECT_TRUE(prove("ring", TUTTI_REDUCE, 7, 6).rank_order);
  EXPECT_FALSE(prove("ring", TUTTI_ALL_REDUCE, 7).rank_order);
}

// A larger base: fewer rounds and fewer bytes, more messages.
TEST(Claims, BruckToAnotherBase) {
  const tutti_algorithm& bruck = *find_algorithm("bruck");
  Problem problem{.collective = TUTTI_ALL_TO_ALL};
  for (const char* base : {"2", "3", "4", "64"})
    for (problem.nranks = 1; problem.nranks <= 33; ++problem.nranks) {
      problem.parameters = base;
      const Proof proof = verify_algorithm(bruck, problem);
      ASSERT_TRUE(proof.ok()) << base << ", n " << problem.nranks << ": " << proof.error;
    }
  problem.nranks = 16;
  problem.parameters = "4";
  EXPECT_EQ(verify_algorithm(bruck, problem).rounds, 2);
  EXPECT_NEAR(verify_algorithm(bruck, problem).bytes_sent, 24, 1e-9);
  problem.parameters = "";
  EXPECT_EQ(verify_algorithm(bruck, problem).rounds, 4);
  EXPECT_NEAR(verify_algorithm(bruck, problem).bytes_sent, 32, 1e-9);
}

TEST(Claims, WrongParametersAreRefused) {
  for (const char* wrong : {"1", "65", "x", "4x", "-2", "99999999999"}) {
    const Problem problem{.collective = TUTTI_ALL_TO_ALL, .nranks = 4, .parameters = wrong};
    const tutti_query query = make_query(problem, 0);
    EXPECT_EQ(find_algorithm("bruck")->supports(nullptr, &query), TUTTI_NOT_SUPPORTED) << wrong;
  }
  const Problem problem{.collective = TUTTI_ALL_REDUCE, .nranks = 4, .parameters = "4"};
  const tutti_query query = make_query(problem, 0);
  EXPECT_EQ(find_algorithm("ring")->supports(nullptr, &query), TUTTI_INVALID_ARGUMENT);
}

// A core of an older draft asks without the later fields; one of a newer one with fields that are zero, or not.
TEST(Claims, QueriesOfEverySize) {
  struct Longer {
    tutti_query query;
    uint64_t later;
  } longer{};
  const Problem problem{.collective = TUTTI_ALL_TO_ALL, .nranks = 4, .parameters = "4"};
  longer.query = make_query(problem, 0);
  const tutti_algorithm& bruck = *find_algorithm("bruck");
  longer.query.struct_size = offsetof(tutti_query, parameters);
  longer.query.parameters = "not looked at";
  EXPECT_EQ(bruck.supports(nullptr, &longer.query), TUTTI_OK);
  longer.query.struct_size -= 8;
  EXPECT_EQ(bruck.supports(nullptr, &longer.query), TUTTI_INVALID_ARGUMENT);
  longer.query = make_query(problem, 0);
  longer.query.struct_size = sizeof longer;
  EXPECT_EQ(bruck.supports(nullptr, &longer.query), TUTTI_OK);
  longer.later = 1;
  EXPECT_EQ(bruck.supports(nullptr, &longer.query), TUTTI_NOT_SUPPORTED);
}

TEST(Claims, Rounds) {
  EXPECT_EQ(prove("direct", TUTTI_ALL_REDUCE, 13).rounds, 1);
  EXPECT_EQ(prove("ring", TUTTI_ALL_REDUCE, 13).rounds, 24);
  EXPECT_EQ(prove("halving", TUTTI_ALL_REDUCE, 13).rounds, 8);
  EXPECT_EQ(prove("doubling", TUTTI_ALL_REDUCE, 16).rounds, 4);
  EXPECT_EQ(prove("doubling", TUTTI_ALL_REDUCE, 13).rounds, 5);
  EXPECT_EQ(prove("tree", TUTTI_BROADCAST, 13).rounds, 3);
  EXPECT_EQ(prove("tree", TUTTI_BROADCAST, 16).rounds, 4);
  EXPECT_EQ(prove("bruck", TUTTI_ALL_TO_ALL, 13).rounds, 4);
  EXPECT_EQ(prove("doubling", TUTTI_BARRIER, 13).rounds, 4);
}

}  // namespace
}  // namespace tutti::test
