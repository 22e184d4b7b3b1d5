// SPDX-License-Identifier: Apache-2.0
//
// Every algorithm of the plugin, proved by the core's verifier: for each n up to 64, every root up to 16 ranks and
// roots 0, 1 and n-1 beyond, out of place, in place and mixed; on one host, on hosts of chosen sizes and on random
// ones. A proof holds for every count, data type and slice
// count.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <cstdio>
#include <set>

#include "plugin_under_test.hpp"

namespace tutti::test {
namespace {

std::set<uint32_t> roots(uint32_t collective, uint32_t n) {
  std::set<uint32_t> list{0};
  if (!has_root(collective)) return list;
  if (n > 17) return {0, 1, n - 1};
  for (uint32_t root = 1; root < n; ++root) list.insert(root);
  return list;
}

const std::set<std::string> not_sliced{"tree_gather", "leaders_gather", "doubling_reduce_scatter",
                                       "doubling_reduce_scatter_v"};

// The problems that an algorithm may refuse: an odd number of ranks, all ranks on one host, no NUMA nodes, and in scans
// hosts whose ranks do not follow each other.
bool may_refuse(const Offer& offer, const Problem& problem) {
  const std::string name = offer.algorithm->name;
  if (problem.nranks == 1) return false;
  if (name == "three_level") return !problem.topology;
  if (name == "neighbour" || name == "swing") return problem.nranks % 2 == 1;
  const bool scan = is_scan(offer.collective);
  if (name != "hierarchical" || (!scan && offer.collective != TUTTI_ALL_TO_ALL)) return false;
  if (problem.hosts.empty() || *std::ranges::max_element(problem.hosts) == 0) return true;
  return scan && !std::ranges::is_sorted(problem.hosts);
}
// Does it serve a problem with as many lanes as it wants? It must, unless it may refuse.
bool serves(const Offer& offer, const Problem& problem) {
  const tutti_query query = make_query(problem, 0);
  const bool yes = offer.algorithm->supports(offer.algorithm->self, &query) == TUTTI_OK;
  EXPECT_NE(yes, may_refuse(offer, problem)) << offer_name(offer) << ", n " << problem.nranks << ": " << last_error();
  return yes;
}

constexpr uint32_t most_ranks = sanitized ? 20 : 64;

class Proofs : public testing::TestWithParam<Offer> {};

TEST_P(Proofs, HoldUpTo64Ranks) {
  const Offer offer = GetParam();
  uint64_t steps = 0;
  for (uint32_t n = 1; n <= most_ranks; ++n)
    for (const uint32_t root : roots(offer.collective, n)) {
      const Problem problem{.collective = offer.collective, .nranks = n, .root = root};
      if (!serves(offer, problem)) continue;
      const Proof proof = verify_algorithm(*offer.algorithm, problem);
      ASSERT_TRUE(proof.ok()) << "n " << n << ", root " << root << ": " << fault_name(proof.fault) << ": "
                              << proof.error;
      ASSERT_TRUE(proof.same_tree || offer.collective != TUTTI_ALL_REDUCE) << "n " << n;
      ASSERT_TRUE(proof.canonical || !offer_name(offer).starts_with("canonical")) << "n " << n << ", root " << root;
      ASSERT_TRUE(proof.flat || !offer_name(offer).starts_with("flat")) << "n " << n << ", root " << root;
      Schedule own;
      std::string error;
      ASSERT_EQ(build_schedule(*offer.algorithm, make_query(problem, n - 1), &own, &error), TUTTI_OK) << error;
      ASSERT_EQ(own.sliced(), !not_sliced.contains(offer_name(offer)));
      ASSERT_TRUE(own.has_levels() || n == 1) << "n " << n;
      ASSERT_TRUE(proof.rank_order || !is_scan(offer.collective)) << "n " << n;
      ASSERT_GE(proof.bytes_sent, proof.bytes_lower_bound * (1 - 1e-9)) << "n " << n << ", root " << root;
      steps += proof.steps;
    }
  std::printf("  %-24s %8llu steps\n", offer_name(offer).c_str(), static_cast<unsigned long long>(steps));
}

// The schedules of all ranks, in place and out of place.
std::vector<uint64_t> digest(const tutti_algorithm& algorithm, Problem problem) {
  std::vector<uint64_t> hashes;
  for (const bool in_place : {false, true}) {
    if (in_place && problem.collective == TUTTI_ALL_TO_ALL_V) continue;  // it has no such form
    problem.in_place.assign(problem.nranks, in_place);
    std::vector<Schedule> schedules;
    std::string error;
    EXPECT_EQ(build_schedules(algorithm, problem, &schedules, &error), TUTTI_OK) << error;
    for (const Schedule& schedule : schedules) hashes.push_back(schedule_hash(schedule));
  }
  return hashes;
}

TEST_P(Proofs, HoldOnHosts) {
  const Offer offer = GetParam();
  std::vector<std::vector<uint32_t>> placements;
  for (const std::vector<uint32_t>& sizes : std::vector<std::vector<uint32_t>>{
           {1, 3}, {2, 3, 5}, {1, 1, 1, 1, 1, 1, 1}, {2, 2}, {4, 4}, {3, 3, 3}, {7, 8, 9}, {16, 16}})
    for (const bool cyclic : {false, true}) placements.push_back(place_on_hosts(sizes, cyclic));
  for (uint32_t n = 2; n <= 40; n += n < 17 ? 1 : 7) placements.push_back(random_hosts(n, n));
  for (const auto& hosts : placements)
    for (const uint32_t lanes : {1u, 4u}) {
      const auto n = static_cast<uint32_t>(hosts.size());
      for (const uint32_t root : roots(offer.collective, n)) {
        const Problem problem{
            .collective = offer.collective, .nranks = n, .root = root, .lanes = lanes, .hosts = hosts};
        const tutti_query query = make_query(problem, 0);
        if (lanes == 1 && offer.algorithm->supports(offer.algorithm->self, &query) < 0) continue;
        if (lanes > 1 && !serves(offer, problem)) continue;
        Problem one_host = problem;
        one_host.hosts.clear();
        if (lanes > 1 && !may_refuse(offer, one_host) &&
            digest(*offer.algorithm, problem) == digest(*offer.algorithm, one_host))
          continue;  // hosts change nothing
        const Proof proof = verify_algorithm(*offer.algorithm, problem);
        ASSERT_TRUE(proof.ok()) << "hosts" << text_of(hosts) << ", root " << root << ", lanes " << lanes << ": "
                                << fault_name(proof.fault) << ": " << proof.error;
        ASSERT_TRUE(proof.same_tree || offer.collective != TUTTI_ALL_REDUCE) << text_of(hosts);
        ASSERT_TRUE(proof.rank_order || !is_scan(offer.collective)) << text_of(hosts);
      }
    }
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
  // Operators that do not commute need one for everything.
  for (uint32_t n = 1; n <= most_ranks; ++n) {
    for (const uint32_t collective : {TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_REDUCE_SCATTER_V})
      EXPECT_TRUE(prove("direct", collective, n).rank_order) << collective_name(collective) << " " << n;
    for (uint32_t root = 0; root < n; root += n < 18 ? 1 : 7)
      EXPECT_TRUE(prove("direct", TUTTI_REDUCE, n, root).rank_order) << n << " " << root;
  }
  EXPECT_TRUE(prove("doubling", TUTTI_ALL_REDUCE, 7).rank_order);
  EXPECT_TRUE(prove("tree", TUTTI_ALL_REDUCE, 7).rank_order);
  EXPECT_TRUE(prove("tree", TUTTI_REDUCE, 7).rank_order);
  EXPECT_TRUE(prove("ring", TUTTI_REDUCE, 7, 6).rank_order);
  EXPECT_FALSE(prove("ring", TUTTI_ALL_REDUCE, 7).rank_order);
  for (const bool cyclic : {false, true}) {
    const std::vector<uint32_t> hosts = place_on_hosts(std::vector<uint32_t>{2, 3, 5}, cyclic);
    const Problem problem{.collective = TUTTI_ALL_REDUCE, .nranks = 10, .hosts = hosts};
    EXPECT_EQ(verify_algorithm(*find_algorithm("leaders"), problem).rank_order, !cyclic);
  }
}

// Proofs has those that are made for TUTTI_ORDER=canonical; others have the order by chance or not at all.
TEST(Claims, CanonicalOrder) {
  for (const uint32_t n : {5u, 8u, 13u, 32u}) {
    EXPECT_TRUE(prove("tree", TUTTI_ALL_REDUCE, n).canonical);
    EXPECT_TRUE(prove("tree", TUTTI_REDUCE, n).canonical);
    EXPECT_FALSE(prove("tree", TUTTI_REDUCE, n, 1).canonical);
    for (const char* other : {"ring", "direct", "double_tree", "halving"})
      EXPECT_FALSE(prove(other, TUTTI_ALL_REDUCE, n).canonical) << other << " " << n;
    EXPECT_FALSE(prove("hillis_steele", TUTTI_SCAN, n).canonical);
  }
}

// Proofs has `flat`. Two ranks have only one way to reduce, but for a copy behind it.
TEST(Claims, FlatReductions) {
  for (const uint32_t n : {3u, 5u, 8u, 13u, 32u}) {
    EXPECT_TRUE(prove("direct", TUTTI_ALL_REDUCE, n).flat);
    for (const uint32_t collective : {TUTTI_REDUCE, TUTTI_REDUCE_SCATTER})
      EXPECT_FALSE(prove("direct", collective, n).flat) << "along a chain";
    for (const char* other : {"ring", "tree", "doubling", "canonical_direct", "canonical_halving"})
      EXPECT_FALSE(prove(other, TUTTI_ALL_REDUCE, n).flat) << other << " " << n;
    EXPECT_FALSE(prove("chain", TUTTI_SCAN, n).flat);
    EXPECT_FALSE(prove("direct", TUTTI_ALL_GATHER, n).flat);
  }
  for (const char* any : {"ring", "direct", "halving", "flat"})
    EXPECT_TRUE(prove(any, TUTTI_ALL_REDUCE, 2).flat) << any;
}

// The bytes of a ring in two rounds. Small blocks of a reduce go to the root as a whole.
TEST(Claims, FlatRoundsAndBytes) {
  for (const uint32_t n : {2u, 3u, 8u, 33u}) {
    const Proof all_reduce = prove("flat", TUTTI_ALL_REDUCE, n);
    EXPECT_EQ(all_reduce.rounds, 2u) << n;
    EXPECT_NEAR(all_reduce.bytes_sent, all_reduce.bytes_lower_bound, 1e-9) << n;
    EXPECT_EQ(prove("flat", TUTTI_REDUCE_SCATTER, n).rounds, 1u) << n;
    Problem problem{.collective = TUTTI_REDUCE, .nranks = n, .root = n - 1, .block_bytes = (512 << 10) / n};
    for (; problem.root > 0; --problem.root) {
      const Proof small = verify_algorithm(*find_algorithm("flat"), problem);
      ASSERT_TRUE(small.ok()) << small.error;
      EXPECT_TRUE(small.flat);
      EXPECT_EQ(small.messages, n - 1) << n;
    }
    EXPECT_EQ(prove("flat", TUTTI_REDUCE, n).messages, uint64_t{n} * (n - 1) + n - 1) << n;
  }
}

TEST(Claims, CanonicalRoundsAndBytes) {
  for (const uint32_t n : {2u, 3u, 5u, 7u, 8u, 12u, 17u, 33u, 64u}) {
    const auto rounds = static_cast<uint64_t>(std::bit_width(n - 1));
    EXPECT_LE(prove("canonical_doubling", TUTTI_REDUCE, n).rounds, rounds) << n;
    for (const uint32_t c : {TUTTI_ALL_REDUCE, TUTTI_SCAN})
      EXPECT_EQ(prove("canonical_doubling", c, n).rounds, rounds) << collective_name(c) << " " << n;
    EXPECT_EQ(prove("canonical_halving", TUTTI_REDUCE_SCATTER, n).rounds, rounds) << n;
    const Proof all_reduce = prove("canonical_halving", TUTTI_ALL_REDUCE, n);
    EXPECT_EQ(all_reduce.rounds, 2 * rounds) << n;
    EXPECT_LE(all_reduce.bytes_sent, all_reduce.bytes_lower_bound * (std::has_single_bit(n) ? 1 : 1.25) + 1e-9) << n;
    EXPECT_EQ(prove("canonical_direct", TUTTI_ALL_REDUCE, n).rounds, 1u) << n;
  }
}

TEST(Claims, Scans) {
  for (const uint32_t n : {2u, 3u, 7u, 8u, 13u, 64u}) {
    const auto rounds = static_cast<uint64_t>(std::bit_width(n - 1));
    EXPECT_LE(prove("hillis_steele", TUTTI_SCAN, n).rounds, rounds) << n;
    EXPECT_LE(prove("exclusive_doubling", TUTTI_EXCLUSIVE_SCAN, n).rounds, rounds) << n;
    for (const uint32_t collective : {TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN}) {
      const Proof proof = prove("chain", collective, n);
      EXPECT_EQ(proof.rounds, n - 1) << n;
      EXPECT_NEAR(proof.bytes_sent, proof.bytes_lower_bound, 1e-9) << n;
      EXPECT_EQ(proof.messages, n - 1) << n;
    }
    EXPECT_LE(prove("hillis_steele", TUTTI_SCAN, n).scratch_chunks, 1u);
    EXPECT_LE(prove("exclusive_doubling", TUTTI_EXCLUSIVE_SCAN, n).scratch_chunks, 3u);
  }
  EXPECT_EQ(prove("chain", TUTTI_SCAN, 9).scratch_chunks, 0u);
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

// The number of peers changes nothing but what waits for what.
TEST(Claims, DirectWithBoundedPeers) {
  for (const uint32_t collective : {TUTTI_ALL_TO_ALL, TUTTI_ALL_TO_ALL_V})
    for (const uint32_t peers : {1u, 2u, 3u, 16u}) {
      Problem problem{.collective = collective, .parameters = std::to_string(peers)};
      for (problem.nranks = 1; problem.nranks <= 33; problem.nranks += problem.nranks < 10 ? 1 : 4) {
        const Proof proof = verify_algorithm(*find_algorithm("direct"), problem);
        ASSERT_TRUE(proof.ok()) << peers << ", n " << problem.nranks << ": " << proof.error;
        EXPECT_EQ(proof.lanes, problem.nranks > peers + 1 ? 2u : 1u) << peers << ", n " << problem.nranks;
      }
      problem.nranks = 33;
      Schedule schedule;
      std::string error;
      ASSERT_EQ(build_schedule(*find_algorithm("direct"), make_query(problem, 5), &schedule, &error), TUTTI_OK)
          << error;
      // Of the exchanges that are not waited for no more than `peers` may be under way.
      uint32_t free_sends = 0, free_receives = 0;
      for (const Step& step : schedule.lanes[0]) {
        if (step.op.dependency_lane != TUTTI_NO_DEPENDENCY) continue;
        free_sends += step.op.kind == TUTTI_STEP_SEND;
        free_receives += step.op.kind == TUTTI_STEP_RECV;
      }
      EXPECT_EQ(free_sends, peers);
      EXPECT_EQ(free_receives, peers);
    }
}

// PAT: the smaller the messages, the more of them; as many bytes, near ones first. Any number of ranks.
TEST(Claims, PatOfAnyAggregation) {
  const tutti_algorithm& pat = *find_algorithm("pat");
  for (const uint32_t collective : {TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER})
    for (const auto& [blocks, messages, scratch] :
         {std::tuple{"1", 63u, collective == TUTTI_ALL_GATHER ? 0u : 5u}, std::tuple{"2", 32u, 12u},
          std::tuple{"3", 32u, 12u}, std::tuple{"4", 17u, 20u}, std::tuple{"16", 7u, 48u}, std::tuple{"", 6u, 64u}}) {
      Problem problem{.collective = collective, .parameters = blocks};
      for (problem.nranks = 1; problem.nranks <= 64; problem.nranks += problem.nranks < 34 ? 1 : 6) {
        const Proof proof = verify_algorithm(pat, problem);
        ASSERT_TRUE(proof.ok()) << blocks << ", n " << problem.nranks << ": " << proof.error;
        EXPECT_NEAR(proof.bytes_sent, problem.nranks - 1, 1e-9) << blocks;
      }
      problem.nranks = 64;
      const Proof proof = verify_algorithm(pat, problem);
      EXPECT_EQ(proof.messages, uint64_t{64} * messages) << blocks;
      EXPECT_LE(proof.scratch_chunks, scratch) << blocks;
    }
}

// Without parameters the size decides: small blocks are sent together, large ones alone.
TEST(Claims, PatBySize) {
  for (const auto& [bytes, messages] : {std::pair{uint64_t{1023}, 6u}, std::pair{uint64_t{4095}, 7u},
                                        std::pair{uint64_t{65535}, 63u}, std::pair{uint64_t{1} << 40, 63u}}) {
    const Problem problem{.collective = TUTTI_ALL_GATHER, .nranks = 64, .block_bytes = bytes};
    EXPECT_EQ(verify_algorithm(*find_algorithm("pat"), problem).messages, uint64_t{64} * messages) << bytes;
  }
}

// A sample beyond 64 ranks.
TEST(Claims, BlocksOfManyRanks) {
  for (const uint32_t n : {100u, 254u, 299u, 300u})
    for (const char* name : {"pat", "neighbour", "swing"})
      for (const uint32_t collective : {TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER, TUTTI_ALL_REDUCE}) {
        const tutti_algorithm& algorithm = *find_algorithm(name);
        const Problem problem{.collective = collective, .nranks = n};
        if (!(algorithm.collectives >> collective & 1) || !serves({&algorithm, collective}, problem)) continue;
        std::vector<Schedule> schedules;
        std::string error;
        ASSERT_EQ(build_schedules(algorithm, problem, &schedules, &error), TUTTI_OK) << error;
        const Proof proof = verify(problem, schedules);
        EXPECT_TRUE(proof.ok()) << name << " " << n << ": " << proof.error;
        EXPECT_NEAR(proof.bytes_sent, proof.bytes_lower_bound, 1e-9) << name << " " << n;
      }
}

// The fewest bytes; neighbours only, in half the rounds of a ring; logarithmic rounds.
TEST(Claims, EvenNumbersOfRanks) {
  for (const uint32_t n : {2u, 6u, 10u, 16u, 64u}) {
    for (const char* name : {"neighbour", "swing"}) {
      const Proof proof = prove(name, TUTTI_ALL_GATHER, n);
      EXPECT_NEAR(proof.bytes_sent, n - 1, 1e-9) << name << " " << n;
      EXPECT_LE(proof.rounds, name == std::string("swing") ? std::bit_width(n - 1) : n / 2) << name << " " << n;
    }
    EXPECT_EQ(prove("neighbour", TUTTI_ALL_GATHER, n).messages, n * n / 2) << n;
    EXPECT_NEAR(prove("swing", TUTTI_ALL_REDUCE, n).bytes_sent, 2.0 * (n - 1) / n, 1e-9) << n;
    EXPECT_LE(prove("swing", TUTTI_ALL_REDUCE, n).rounds, 2 * std::bit_width(n - 1)) << n;
  }
  EXPECT_EQ(prove("swing", TUTTI_ALL_GATHER, 64).messages, 64u * 6);
}

// Few bytes go far: block-ranks of distance on the ring, of the busiest rank.
TEST(Claims, FewBytesGoFar) {
  const auto distance_of = [](const char* name, uint32_t collective, uint32_t n) {
    const Problem problem{.collective = collective, .nranks = n};
    std::vector<Schedule> schedules;
    std::string error;
    EXPECT_EQ(build_schedules(*find_algorithm(name), problem, &schedules, &error), TUTTI_OK) << error;
    double most = 0;
    for (uint32_t rank = 0; rank < n; ++rank) {
      double sum = 0;
      for (const Step& step : schedules[rank].lanes[0]) {
        if (step.op.kind != TUTTI_STEP_SEND) continue;
        const uint32_t ahead = (step.op.peer + n - rank) % n;
        sum += double(std::min(ahead, n - ahead)) * step.op.src.chunks / schedules[rank].pieces();
      }
      most = std::max(most, sum);
    }
    return most;
  };
  for (const uint32_t collective : {TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER})
    for (const char* name : {"pat", "swing"})
      EXPECT_LE(distance_of(name, collective, 64), 0.15 * distance_of("doubling", collective, 64)) << name;
  EXPECT_LE(distance_of("swing", TUTTI_ALL_REDUCE, 64), 0.15 * distance_of("halving", TUTTI_ALL_REDUCE, 64));
}

// One message from each host to each other.
TEST(Claims, FewestMessagesBetweenHosts) {
  for (const bool cyclic : {false, true})
    for (const std::vector<uint32_t>& sizes : {std::vector<uint32_t>{4, 4, 4}, {2, 3, 5}, {1, 1, 1, 1}, {1, 6}}) {
      Problem problem{.collective = TUTTI_ALL_TO_ALL, .hosts = place_on_hosts(sizes, cyclic)};
      problem.nranks = static_cast<uint32_t>(problem.hosts.size());
      std::vector<Schedule> schedules;
      std::string error;
      ASSERT_EQ(build_schedules(*find_algorithm("hierarchical"), problem, &schedules, &error), TUTTI_OK) << error;
      size_t crossing = 0;
      for (uint32_t rank = 0; rank < problem.nranks; ++rank)
        crossing += static_cast<size_t>(std::ranges::count_if(schedules[rank].lanes[0], [&](const Step& step) {
          return step.op.kind == TUTTI_STEP_SEND && problem.hosts[rank] != problem.hosts[step.op.peer];
        }));
      EXPECT_EQ(crossing, sizes.size() * (sizes.size() - 1)) << cyclic;
    }
}

// Fewer rounds, more bytes from the root; the base 2 is the binomial tree.
TEST(Claims, TreeToAnotherBase) {
  const tutti_algorithm& tree = *find_algorithm("tree");
  for (const uint32_t collective : {TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_ALL_REDUCE})
    for (const char* base : {"3", "4", "64"})
      for (uint32_t n = 1; n <= 64; n += n < 17 ? 1 : n == 62 ? 2 : 5)
        for (const uint32_t root : roots(collective, n)) {
          const Problem problem{.collective = collective, .nranks = n, .root = root, .parameters = base};
          const Proof proof = verify_algorithm(tree, problem);
          ASSERT_TRUE(proof.ok()) << base << ", n " << n << ", root " << root << ": " << proof.error;
        }
  Problem problem{.collective = TUTTI_BROADCAST, .nranks = 64, .parameters = "4"};
  EXPECT_EQ(verify_algorithm(tree, problem).rounds, 3);
  EXPECT_NEAR(verify_algorithm(tree, problem).bytes_sent, 9, 1e-9);
  problem.collective = TUTTI_REDUCE;
  EXPECT_TRUE(verify_algorithm(tree, problem).rank_order);
  std::vector<Schedule> plain, base_2;
  std::string error;
  problem.parameters = "";
  ASSERT_EQ(build_schedules(tree, problem, &plain, &error), TUTTI_OK);
  problem.parameters = "2";
  ASSERT_EQ(build_schedules(tree, problem, &base_2, &error), TUTTI_OK);
  for (uint32_t rank = 0; rank < 64; ++rank) EXPECT_EQ(schedule_hash(plain[rank]), schedule_hash(base_2[rank]));
}

// Logarithmic rounds, and no rank sends more than twice the block.
TEST(Claims, DoubleTree) {
  for (const uint32_t n : {2u, 3u, 8u, 33u, 64u}) {
    EXPECT_LE(prove("double_tree", TUTTI_ALL_REDUCE, n).bytes_sent, 2) << n;
    EXPECT_LE(prove("double_tree", TUTTI_BROADCAST, n).bytes_sent, 1) << n;
    EXPECT_LE(prove("double_tree", TUTTI_REDUCE, n).bytes_sent, 1) << n;
    EXPECT_LE(prove("double_tree", TUTTI_ALL_REDUCE, n).rounds, 2 * std::bit_width(n) + 2u) << n;
  }
  EXPECT_TRUE(prove("double_tree", TUTTI_ALL_REDUCE, 8).rank_order);
}

TEST(Claims, WrongParametersAreRefused) {
  for (const char* wrong : {"1", "65", "x", "4x", "-2", "99999999999"})
    for (const auto& [name, collective] : {std::pair{"bruck", TUTTI_ALL_TO_ALL}, std::pair{"tree", TUTTI_BROADCAST}}) {
      const Problem problem{.collective = static_cast<uint32_t>(collective), .nranks = 4, .parameters = wrong};
      const tutti_query query = make_query(problem, 0);
      EXPECT_EQ(find_algorithm(name)->supports(nullptr, &query), TUTTI_NOT_SUPPORTED) << name << ":" << wrong;
    }
  for (const char* wrong : {"0", "65537", "x", "4x", "-2", "99999999999"}) {
    for (const auto& [name, collective] : {std::pair{"pat", TUTTI_ALL_GATHER}, std::pair{"direct", TUTTI_ALL_TO_ALL}}) {
      const Problem problem{.collective = static_cast<uint32_t>(collective), .nranks = 4, .parameters = wrong};
      const tutti_query query = make_query(problem, 0);
      EXPECT_EQ(find_algorithm(name)->supports(nullptr, &query), TUTTI_NOT_SUPPORTED) << name << ":" << wrong;
    }
  }
  const Problem gather{.collective = TUTTI_GATHER, .nranks = 4, .parameters = "4"};
  const tutti_query tree_gather = make_query(gather, 0);
  EXPECT_EQ(find_algorithm("tree")->supports(nullptr, &tree_gather), TUTTI_NOT_SUPPORTED);
  EXPECT_EQ(find_algorithm("direct")->supports(nullptr, &tree_gather), TUTTI_NOT_SUPPORTED);
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
