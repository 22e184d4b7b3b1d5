// SPDX-License-Identifier: Apache-2.0
//
// The claims of algorithms that know hosts and NUMA nodes: proofs for chosen and random places, and how much leaves a
// host or a node. proof_test.cpp proves every algorithm on hosts.
#include <gtest/gtest.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "plugin_under_test.hpp"

namespace tutti::test {
namespace {

// The blocks that leave a host.
double leaves_a_host(const char* algorithm, const Problem& problem) {
  const std::vector<uint32_t>& hosts = problem.hosts;
  std::vector<Schedule> schedules;
  std::string error;
  EXPECT_EQ(build_schedules(*find_algorithm(algorithm), problem, &schedules, &error), TUTTI_OK) << error;
  std::vector<double> sent(1 + *std::ranges::max_element(hosts), 0);
  for (uint32_t rank = 0; rank < hosts.size(); ++rank)
    for (const auto& lane : schedules[rank].lanes)
      for (const Step& step : lane)
        if (step.op.kind == TUTTI_STEP_SEND && hosts[rank] != hosts[step.op.peer])
          sent[hosts[rank]] += double(step.op.src.chunks) / schedules[rank].pieces();
  return *std::ranges::max_element(sent);
}

double leaves_a_host(const char* algorithm, uint32_t collective, const std::vector<uint32_t>& hosts) {
  return leaves_a_host(algorithm,
                       {.collective = collective, .nranks = static_cast<uint32_t>(hosts.size()), .hosts = hosts});
}

TEST(Hosts, FewestBytesBetweenHosts) {
  for (const bool cyclic : {false, true})
    for (const uint32_t h : {2u, 3u, 5u}) {
      const std::vector<uint32_t> hosts = place_on_hosts(std::vector<uint32_t>(h, 4), cyclic);
      EXPECT_NEAR(leaves_a_host("hierarchical", TUTTI_ALL_REDUCE, hosts), 2.0 * (h - 1) / h, 1e-9);
      EXPECT_NEAR(leaves_a_host("hierarchical", TUTTI_ALL_GATHER, hosts), 4 * (h - 1), 1e-9);
      EXPECT_NEAR(leaves_a_host("hierarchical", TUTTI_REDUCE_SCATTER, hosts), 4 * (h - 1), 1e-9);
      EXPECT_LE(leaves_a_host("leaders", TUTTI_REDUCE, hosts), 1);
      EXPECT_LE(leaves_a_host("leaders", TUTTI_BROADCAST, hosts), ceil(log2(h)));
    }
}

// NUMA nodes of so many ranks on each host in turn; `cyclic`: a host's ranks are dealt out to its nodes.
std::vector<int32_t> nodes_on(const std::vector<uint32_t>& hosts, const std::vector<std::vector<uint32_t>>& sizes,
                              bool cyclic) {
  std::vector<std::vector<uint32_t>> of_index;
  for (const std::vector<uint32_t>& host : sizes) of_index.push_back(place_on_hosts(host, cyclic));
  std::vector<size_t> seen(sizes.size(), 0);
  std::vector<int32_t> nodes;
  for (const uint32_t host : hosts) nodes.push_back(static_cast<int32_t>(of_index[host][seen[host]++]));
  return nodes;
}

// Runs f for each problem with the place and lanes of this one that `three_level` takes.
template <typename F>
void for_levelled(Problem problem, F f) {
  const tutti_algorithm& algorithm = *find_algorithm("three_level");
  for (problem.collective = 0; problem.collective < 64; ++problem.collective) {
    if (!(algorithm.collectives >> problem.collective & 1)) continue;
    for (problem.root = 0; problem.root < (has_root(problem.collective) ? problem.nranks : 1); ++problem.root)
      if (const tutti_query query = make_query(problem, 0); algorithm.supports(algorithm.self, &query) >= 0)
        f(algorithm, problem);
  }
}

TEST(Hosts, ThreeLevels) {
  const std::vector<std::vector<std::vector<uint32_t>>> places{
      {{1, 1}},         {{2, 2}},         {{4, 4}, {4, 4}}, {{1, 3}, {2, 2}},        {{2, 1}, {1}, {1, 1, 1}},
      {{3, 2, 4}, {5}}, {{1, 1}, {1, 1}}, {{7, 1}, {2, 6}}, {{2, 3}, {3, 5}, {1, 2}}};
  for (const auto& sizes : places)
    for (const bool cyclic_hosts : {false, true})
      for (const bool cyclic_nodes : {false, true}) {
        std::vector<uint32_t> ranks;
        for (const auto& host : sizes) ranks.push_back(std::accumulate(host.begin(), host.end(), 0u));
        Problem problem{.hosts = place_on_hosts(ranks, cyclic_hosts)};
        problem.nranks = static_cast<uint32_t>(problem.hosts.size());
        problem.topology = topology_of_nodes(problem.hosts, nodes_on(problem.hosts, sizes, cyclic_nodes));
        for (problem.lanes = 1; problem.lanes <= 2; ++problem.lanes) {
          uint32_t proved = 0;
          for_levelled(problem, [&](const tutti_algorithm& algorithm, const Problem& each) {
            const Proof proof = verify_algorithm(algorithm, each);
            ASSERT_TRUE(proof.ok()) << collective_name(each.collective) << ", root " << each.root << ", hosts"
                                    << text_of(each.hosts) << ", lanes " << each.lanes << ": "
                                    << fault_name(proof.fault) << ": " << proof.error;
            ASSERT_TRUE(proof.same_tree || each.collective != TUTTI_ALL_REDUCE) << text_of(each.hosts);
            ++proved;
          });
          EXPECT_EQ(proved, 4 * problem.nranks + (problem.lanes == 2 ? 6 : 5));
        }
      }
}

TEST(Hosts, ThreeLevelsAnywhere) {
  for (uint32_t n = 2; n <= 64; n += n < 17 ? 1 : 9) {
    Problem problem{.nranks = n, .lanes = 1 + n % 2, .hosts = random_hosts(n, n)};
    const std::vector<uint32_t> at_random = random_hosts(n, 100 + n);
    problem.topology = topology_of_nodes(problem.hosts, std::vector<int32_t>(at_random.begin(), at_random.end()));
    for_levelled(problem, [&](const tutti_algorithm& algorithm, const Problem& each) {  // none: a node for each host
      const Proof proof = verify_algorithm(algorithm, each);
      ASSERT_TRUE(proof.ok()) << collective_name(each.collective) << ", root " << each.root << ", hosts"
                              << text_of(each.hosts) << ", nodes" << text_of(at_random) << ": "
                              << fault_name(proof.fault) << ": " << proof.error;
    });
  }
}

// The blocks that leave a node of host 0 for the host's other nodes.
double leaves_a_node(const char* algorithm, const Problem& problem) {
  std::vector<Schedule> schedules;
  std::string error;
  EXPECT_EQ(build_schedules(*find_algorithm(algorithm), problem, &schedules, &error), TUTTI_OK) << error;
  const int32_t* const node = problem.topology->numa_of_rank;
  double sent = 0;
  for (uint32_t rank = 0; rank < problem.nranks; ++rank)
    for (const auto& lane : schedules[rank].lanes)
      for (const Step& step : lane)
        if (step.op.kind == TUTTI_STEP_SEND && problem.hosts[rank] == 0 && problem.hosts[step.op.peer] == 0 &&
            node[rank] == 0 && node[step.op.peer] != 0)
          sent += double(step.op.src.chunks) / schedules[rank].pieces();
  return sent;
}

// Two hosts of two nodes of four ranks: half a block each way, where direct exchanges send four times as much.
TEST(Hosts, ThreeLevelsCrossNodesOnce) {
  Problem problem{.collective = TUTTI_ALL_REDUCE, .nranks = 16, .hosts = place_on_hosts(std::vector{8u, 8u}, false)};
  problem.topology = topology_of_nodes(problem.hosts, nodes_on(problem.hosts, {{4, 4}, {4, 4}}, false));
  EXPECT_NEAR(leaves_a_node("three_level", problem), 1, 1e-9);
  EXPECT_NEAR(leaves_a_node("hierarchical", problem), 4, 1e-9);
  EXPECT_NEAR(leaves_a_host("three_level", problem), leaves_a_host("hierarchical", problem), 1e-9);
  problem.collective = TUTTI_ALL_GATHER;
  EXPECT_NEAR(leaves_a_node("three_level", problem), 8, 1e-9) << "each of the blocks that the node has, once";
  EXPECT_NEAR(leaves_a_node("hierarchical", problem), 32, 1e-9);
  EXPECT_NEAR(leaves_a_host("three_level", problem), leaves_a_host("hierarchical", problem), 1e-9);
}

// One host of two nodes to which ranks are dealt in turn: a tree over the host's ranks crosses where it happens to.
TEST(Hosts, TreesOfThreeLevelsCrossNodesOnce) {
  Problem problem{.nranks = 8, .root = 2, .hosts = std::vector<uint32_t>(8, 0)};
  problem.topology = topology_of_nodes(problem.hosts, nodes_on(problem.hosts, {{4, 4}}, true));
  for (const uint32_t collective : {TUTTI_BROADCAST, TUTTI_REDUCE}) {
    problem.collective = collective;
    const bool down = collective == TUTTI_BROADCAST;
    EXPECT_NEAR(leaves_a_node("three_level", problem), down ? 1 : 0, 1e-9);
    EXPECT_NEAR(leaves_a_node("leaders", problem), down ? 4 : 0, 1e-9);
  }
}

// Hosts of 7, 8, 9, 11 and 13 ranks: the union of their cuts, not 72,072.
TEST(Hosts, CutsOfUnevenHosts) {
  const Problem problem{.collective = TUTTI_ALL_REDUCE,
                        .nranks = 48,
                        .hosts = place_on_hosts(std::vector<uint32_t>{7, 8, 9, 11, 13}, false)};
  Schedule schedule;
  std::string error;
  ASSERT_EQ(build_schedule(*find_algorithm("hierarchical"), make_query(problem, 0), &schedule, &error), TUTTI_OK);
  EXPECT_EQ(schedule.pieces(), 44 * 5u);
  EXPECT_TRUE(verify_algorithm(*find_algorithm("hierarchical"), problem).ok());
}

// Few blocks leave a host, whatever its number of ranks.
TEST(Hosts, ScansOnHosts) {
  for (const uint32_t h : {2u, 3u, 5u, 8u})
    for (const uint32_t collective : {TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN}) {
      const std::vector<uint32_t> hosts = place_on_hosts(std::vector<uint32_t>(h, 4), false);
      EXPECT_LE(leaves_a_host("hierarchical", collective, hosts), std::bit_width(h - 1)) << h;
      const Problem problem{.collective = collective, .nranks = 4 * h, .hosts = hosts};
      EXPECT_LE(verify_algorithm(*find_algorithm("hierarchical"), problem).rounds, std::bit_width(h - 1) + 5u) << h;
    }
}

}  // namespace
}  // namespace tutti::test
