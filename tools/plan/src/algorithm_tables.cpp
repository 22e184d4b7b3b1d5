// SPDX-License-Identifier: Apache-2.0
#include "algorithm_tables.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <stdexcept>

#include "findings.hpp"

namespace tutti::plan {
namespace {

std::string collectives_of(const tutti_algorithm& algorithm) {
  std::string names;
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c)
    if (algorithm.collectives >> c & 1) names += (names.empty() ? "" : ", ") + std::string(collective_name(c));
  return names;
}

// In the order of names, whatever plugins they come from.
std::vector<const tutti_algorithm*> by_name(std::vector<const tutti_algorithm*> algorithms) {
  std::ranges::sort(algorithms, {}, [](const tutti_algorithm* one) { return std::string(one->name); });
  return algorithms;
}

std::string figures_of(const tutti_algorithm& algorithm, const Problem& problem) {
  const tutti_query query = make_query(problem, 0);
  if (algorithm.supports(algorithm.self, &query) < 0)
    return fmt::format("| `{}` | refused: {} | | | | | | |\n", algorithm.name, take_plugin_error());
  std::vector<Schedule> schedules;
  std::string error;
  if (build_schedules(algorithm, problem, &schedules, &error) < 0) throw std::runtime_error(error);
  const Proof proof = verify(problem, schedules);
  if (!proof.ok()) throw std::runtime_error(title(problem, algorithm.name) + " is wrong: " + proof.error);
  const HostTraffic traffic = host_traffic(problem, schedules);
  return fmt::format("| `{}` | {} | {} | {:.4g} | {} | {} | {:.4g} | {} |\n", algorithm.name, proof.rounds,
                     proof.messages, proof.bytes_sent,
                     proof.bytes_lower_bound > 0 ? fmt::format("{:.4g}", proof.bytes_lower_bound) : "",
                     traffic.messages, traffic.most_blocks, proof.lanes);
}

}  // namespace

std::string algorithm_list(const std::vector<const tutti_algorithm*>& algorithms) {
  std::string text;
  for (const tutti_algorithm* one : by_name(algorithms))
    text += fmt::format("{:<20} {}\n{:<20} for {}\n", one->name, one->summary, "", collectives_of(*one));
  return text;
}

std::string algorithm_tables(const std::vector<const tutti_algorithm*>& algorithms) {
  std::string text = "| algorithm | in short | collectives |\n| --- | --- | --- |\n";
  const std::vector<const tutti_algorithm*> sorted = by_name(algorithms);
  for (const tutti_algorithm* one : sorted)
    text += fmt::format("| `{}` | {} | {} |\n", one->name, one->summary, collectives_of(*one));
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c) {
    Problem problem{.collective = c, .nranks = 16};
    problem.hosts = place_on_hosts(std::vector<uint32_t>{4, 4, 4, 4}, false);
    std::vector<int32_t> nodes;
    for (int32_t rank = 0; rank < 16; ++rank) nodes.push_back(rank / 2 % 2);
    problem.topology = topology_of_nodes(problem.hosts, nodes);
    text += fmt::format(
        "\n### {}\n\n| algorithm | rounds | messages | sends | bound | between hosts | leaves a host | lanes |\n"
        "| --- | --- | --- | --- | --- | --- | --- | --- |\n",
        collective_name(c));
    for (const tutti_algorithm* one : sorted)
      if (one->collectives >> c & 1) text += figures_of(*one, problem);
  }
  return text;
}

}  // namespace tutti::plan
