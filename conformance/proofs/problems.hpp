// SPDX-License-Identifier: Apache-2.0
//
// The problems that algorithms are proved for: where ranks sit, which rank is the root, how many lanes there are, and
// the smallest of those that fail.
#pragma once

#include <tutti/plugin/algorithm.h>
#include <tutti/schedule.h>

#include <functional>
#include <random>
#include <string>
#include <vector>

namespace tutti::conformance {

// Up to so many ranks every root is proved, beyond it some.
constexpr uint32_t every_root_to = 17;
// Problems are proved with 1 to so many lanes.
constexpr uint32_t most_lanes = 8;

// Hosts of `n` ranks, each list once: one host; two; three even ones; hosts of 1, 3 and 2 ranks in turn; ranks dealt to
// three hosts in turn; a host for each rank; and ranks anywhere, by the seed.
std::vector<std::vector<uint32_t>> placements(uint32_t n, uint64_t seed);

// A NUMA node for each of `n` ranks: two ranks on each of two nodes in turn.
std::vector<int32_t> nodes_in_turn(uint32_t n);

// All roots up to `every_root_to` ranks; beyond it the first two, the middle, the last, and one by the seed.
std::vector<uint32_t> roots(uint32_t collective, uint32_t n, uint64_t seed);

// Any problem of 2 to `most` ranks: hosts, NUMA nodes, root, lanes and size class at random.
Problem random_problem(uint32_t collective, uint32_t most, std::mt19937_64& random);

// A problem that is as small as can be found and for which `fails` still holds, as it does for `problem`. It has fewer
// ranks, hosts and lanes, and a lower root.
Problem shrunk(Problem problem, const std::function<bool(const Problem&)>& fails);

// "reduce on 7 ranks, root 2, 4 lanes, on 3 hosts (0 0 1 1 2 2 2)": what tells problems apart.
std::string text_of(const Problem& problem);

// What is wrong with an algorithm's schedules for a problem.
struct Objection {
  std::string clause;  // of docs/contract.md; "": nothing is wrong
  std::string text;
  explicit operator bool() const { return !clause.empty(); }
};
// Proves the schedules of all ranks, and that an all_reduce has one order of reduction on all of them.
Objection objection_to(const tutti_algorithm& algorithm, const Problem& problem);

}  // namespace tutti::conformance
