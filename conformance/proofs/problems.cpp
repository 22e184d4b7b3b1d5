// SPDX-License-Identifier: Apache-2.0
#include "proofs/problems.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <set>
#include <utility>

namespace tutti::conformance {
namespace {

// Sizes from `pattern`, again and again, until they hold n ranks.
std::vector<uint32_t> sizes_like(std::initializer_list<uint32_t> pattern, uint32_t n) {
  std::vector<uint32_t> sizes;
  while (n > 0)
    for (const uint32_t size : pattern) {
      const uint32_t taken = std::min(size, n);
      if (taken > 0) sizes.push_back(taken);
      n -= taken;
    }
  return sizes;
}

std::vector<uint32_t> even_sizes(uint32_t n, uint32_t hosts) {
  std::vector<uint32_t> sizes(std::min(n, hosts));
  for (uint32_t h = 0; h < sizes.size(); ++h) sizes[h] = n / hosts + (h < n % hosts);
  return sizes;
}

// Hosts numbered in order of first rank.
std::vector<uint32_t> renumbered(const std::vector<uint32_t>& hosts) {
  std::map<uint32_t, uint32_t> numbers;
  std::vector<uint32_t> dense;
  for (const uint32_t host : hosts)
    dense.push_back(numbers.try_emplace(host, static_cast<uint32_t>(numbers.size())).first->second);
  return dense;
}

uint32_t hosts_of(const Problem& p) { return p.hosts.empty() ? 1 : 1 + *std::ranges::max_element(p.hosts); }

std::vector<int32_t> numa_of(const Problem& p) {
  if (!p.topology) return {};
  return {p.topology->numa_of_rank, p.topology->numa_of_rank + p.topology->nranks};
}
// After hosts or ranks have changed; no nodes: not known.
void set_numa(Problem& p, std::vector<int32_t> numa) {
  p.topology = nullptr;
  if (!numa.empty()) p.topology = topology_of_nodes(p.hosts, std::span(numa).first(p.nranks));
}

Problem without_rank(Problem p, uint32_t rank) {
  std::vector<int32_t> numa = numa_of(p);
  if (!numa.empty()) numa.erase(numa.begin() + rank);
  p.hosts.erase(p.hosts.begin() + rank);
  p.hosts = renumbered(p.hosts);
  p.root -= p.root > rank || p.root + 1 == p.nranks;
  --p.nranks;
  set_numa(p, std::move(numa));
  return p;
}

// Problems that are one step smaller, the boldest first.
std::vector<Problem> smaller(const Problem& p) {
  std::vector<Problem> all;
  const auto add = [&](auto&& change) {
    Problem next = p;
    change(next);
    set_numa(next, numa_of(next));
    all.push_back(std::move(next));
  };
  if (p.topology) add([](Problem& q) { q.topology = nullptr; });
  if (p.nranks > 3)
    add([](Problem& q) {
      q.nranks /= 2;
      q.hosts.resize(q.nranks);
      q.root = std::min(q.root, q.nranks - 1);
    });
  if (hosts_of(p) > 1) add([](Problem& q) { std::ranges::fill(q.hosts, 0u); });
  for (uint32_t rank = p.nranks; p.nranks > 1 && rank-- > 0;) all.push_back(without_rank(p, rank));
  if (p.block_bytes) add([](Problem& q) { q.block_bytes = 0; });
  for (uint32_t host = hosts_of(p); --host > 0;)
    add([&](Problem& q) {
      std::ranges::replace(q.hosts, host, host - 1);
      q.hosts = renumbered(q.hosts);
    });
  if (p.lanes > 1) add([](Problem& q) { q.lanes = 1; });
  if (p.lanes > 2) add([](Problem& q) { --q.lanes; });
  if (p.root > 0) add([](Problem& q) { q.root = 0; });
  if (p.root > 1) add([](Problem& q) { --q.root; });
  return all;
}

const char* clause_of(Fault fault) {
  switch (fault) {
    case Fault::unmatched:
    case Fault::size_mismatch:
      return "A-10";
    case Fault::deadlock:
      return "A-11";
    case Fault::wrong_result:
      return "A-12";
    case Fault::race:
      return "A-13";
    case Fault::overwritten:
      return "A-14";
    case Fault::scaling:
      return "A-15";
    case Fault::in_place_order:
      return "A-16";
    case Fault::slice_reuse:
      return "A-17";
    default:
      return "A-8";
  }
}

}  // namespace

std::vector<std::vector<uint32_t>> placements(uint32_t n, uint64_t seed) {
  std::vector<std::vector<uint32_t>> all;
  const auto add = [&](std::vector<uint32_t> hosts) {
    if (std::ranges::find(all, hosts) == all.end()) all.push_back(std::move(hosts));
  };
  add(std::vector<uint32_t>(n, 0));
  add(place_on_hosts(even_sizes(n, 2), false));
  add(place_on_hosts(even_sizes(n, 3), false));
  add(place_on_hosts(sizes_like({1, 3, 2}, n), false));
  add(place_on_hosts(even_sizes(n, 3), true));
  add(place_on_hosts(even_sizes(n, n), false));
  add(random_hosts(n, seed));
  return all;
}

std::vector<int32_t> nodes_in_turn(uint32_t n) {
  std::vector<int32_t> nodes(n);
  for (uint32_t rank = 0; rank < n; ++rank) nodes[rank] = static_cast<int32_t>(rank / 2 % 2);
  return nodes;
}

std::vector<uint32_t> roots(uint32_t collective, uint32_t n, uint64_t seed) {
  if (!has_root(collective)) return {0};
  std::vector<uint32_t> all(n);
  std::iota(all.begin(), all.end(), 0);
  if (n <= every_root_to) return all;
  const std::set<uint32_t> some{0, 1, n / 2, n - 1, static_cast<uint32_t>(seed * 0x9e3779b97f4a7c15u % n)};
  return {some.begin(), some.end()};
}

Problem random_problem(uint32_t collective, uint32_t most, std::mt19937_64& random) {
  Problem p;
  p.collective = collective;
  p.nranks = 2 + static_cast<uint32_t>(random() % (most - 1));
  p.root = has_root(collective) ? static_cast<uint32_t>(random() % p.nranks) : 0;
  p.lanes = 1 + static_cast<uint32_t>(random() % most_lanes);
  const auto known = placements(p.nranks, random());
  p.hosts = random() % 2 ? known.back() : known[random() % known.size()];
  if (random() % 2) p.block_bytes = (uint64_t{2} << random() % 32) - 1;
  if (random() % 2) {
    const std::vector<uint32_t> nodes = random_hosts(p.nranks, random());
    set_numa(p, {nodes.begin(), nodes.end()});
  }
  return p;
}

Problem shrunk(Problem problem, const std::function<bool(const Problem&)>& fails) {
  constexpr uint32_t most_trials = 400;
  if (problem.hosts.empty()) problem.hosts.assign(problem.nranks, 0);
  uint32_t trials = 0;
  for (bool smaller_found = true; smaller_found;) {
    smaller_found = false;
    for (Problem& next : smaller(problem)) {
      if (++trials > most_trials) return problem;
      if (!fails(next)) continue;
      problem = std::move(next);
      smaller_found = true;
      break;
    }
  }
  return problem;
}

std::string text_of(const Problem& p) {
  std::string text = fmt::format("{} on {} ranks", collective_name(p.collective), p.nranks);
  if (has_root(p.collective)) text += fmt::format(", root {}", p.root);
  text += fmt::format(", {} lane{}", p.lanes, p.lanes == 1 ? "" : "s");
  if (p.block_bytes) text += fmt::format(", blocks of at most {} bytes", p.block_bytes);
  std::string nodes;
  for (const int32_t node : numa_of(p)) nodes += fmt::format("{}{}", nodes.empty() ? ", on NUMA nodes (" : " ", node);
  if (!nodes.empty()) nodes += ")";
  const uint32_t hosts = hosts_of(p);
  if (hosts == 1) return text + nodes;
  text += fmt::format(", on {} hosts (", hosts);
  for (uint32_t r = 0; r < p.nranks; ++r) text += fmt::format("{}{}", r ? " " : "", p.hosts[r]);
  return text + ")" + nodes;
}

Objection objection_to(const tutti_algorithm& algorithm, const Problem& problem) {
  const Proof proof = verify_algorithm(algorithm, problem);
  if (!proof.ok()) return {clause_of(proof.fault), fmt::format("{}: {}", fault_name(proof.fault), proof.error)};
  if (problem.collective == TUTTI_ALL_REDUCE && !proof.same_tree)
    return {"A-18",
            "the ranks reduce the values of a chunk in different orders, so their results may differ in the last bits: "
            "let one rank complete each chunk and copy it to the others, or let every rank list the sources of its "
            "REDUCE in one order"};
  return {};
}

}  // namespace tutti::conformance
