// SPDX-License-Identifier: Apache-2.0
#include "simulation_commands.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>

#include "quantity.hpp"
#include "topology_network.hpp"
#include "tune.hpp"

namespace tutti::plan {
namespace {

void add_network_options(CLI::App* command, Request* request, SimulationOptions* options) {
  command->add_option("--network", options->network, "the network, a JSON file: docs/simulation.md");
  command->add_option("--topology", request->topology,
                      "the network and the ranks of a topology file instead: docs/topology.md");
  command->add_option("--element", options->element, "bytes of an element (4)")->check(CLI::Range(1u, 16u));
  command->add_option("--slices", options->slices, "slices of schedules that may be cut, or auto (auto)");
  command->add_option("--memory", options->memory, "how much memory a simulation may take (16G)");
  command->add_option("--lanes", request->lanes, "how many lanes may be used")->check(CLI::Range(1u, 1024u));
  command->add_flag("--json", options->json, "JSON instead of text");
  command->add_option("-o,--output", request->output, "write to this file instead of standard output");
}

// "1,2,3", each parsed; throws WrongRequest.
template <typename Parse>
auto list_of(const char* option, const std::string& text, const char* expected, Parse parse) {
  std::vector<typename decltype(parse(text))::value_type> all;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const auto value = parse(text.substr(begin, end - begin));
    if (!value)
      throw WrongRequest(
          fmt::format("{} \"{}\": expected {}, got \"{}\"", option, text, expected, text.substr(begin, end - begin)));
    all.push_back(*value);
    begin = end + 1;
  }
  return all;
}

NetworkFile network_of(const Request& request, const SimulationOptions& options) {
  if (options.network.empty() == request.topology.empty())
    throw WrongRequest(
        "expected --network FILE (docs/simulation.md) or --topology FILE (docs/topology.md), one of them");
  return request.topology.empty() ? read_network(options.network) : network_of_topology(request.topology);
}

}  // namespace

void add_simulate_options(CLI::App* command, Request* request, SimulationOptions* options) {
  command->add_option("COLLECTIVE", request->collective, "all_reduce, broadcast, ...")->required();
  command->add_option("ALGORITHM", request->algorithm, "ring, tree, bruck:4 ...")->required();
  command->add_option("-n,--ranks", request->ranks, "how many ranks (4)");
  command->add_option("--size", options->size, "bytes of a block (1M)");
  command->add_option("--root", request->root, "the root, for collectives that have one");
  command->add_flag("--in-place", request->in_place, "IN and OUT are one");
  command->add_option("--svg", options->svg, "draws the links' utilisation into this file");
  add_network_options(command, request, options);
}

void add_tune_options(CLI::App* command, Request* request, SimulationOptions* options, TuneRequest* tune) {
  command->add_option("COLLECTIVE", tune->collective, "all_reduce, broadcast, ... or all (all)");
  command->add_option("-n,--ranks", tune->ranks, "numbers of ranks, such as 64,1024 (64)");
  command->add_option("--sizes", tune->sizes, "bytes of a block, several (8,1K,32K,1M,32M)");
  command->add_option("--plot", tune->plot, "draws time over size into this file");
  command->add_option("--most-steps", tune->most_steps, "leaves out simulations of more steps (20000000)");
  add_network_options(command, request, options);
}

Answer answer_simulate(const Request& request, const SimulationOptions& options, const tutti_algorithm& algorithm) {
  const NetworkFile network = network_of(request, options);
  const SimulationShape shape = shape_of(options);
  const Simulated simulated = simulate(algorithm, problem_of(request), network, shape);
  Answer answer;
  answer.text = options.json ? report_json(simulated, network) : report(simulated, network);
  answer.picture_path = options.svg;
  if (!options.svg.empty()) answer.picture = draw_utilisation(simulated, network);
  return answer;
}

Answer answer_tune(const Request& request, const SimulationOptions& options, const TuneRequest& asked) {
  const NetworkFile network = network_of(request, options);
  Tuning tuning;
  SimulationOptions shape = options;
  shape.size = "0";
  tuning.shape = shape_of(shape);
  tuning.lanes = request.lanes;
  tuning.most_steps = asked.most_steps;
  if (!request.topology.empty()) tuning.topology = topology_of(request, hosts_of(request));
  tuning.algorithms = list_algorithms();
  if (tuning.algorithms.empty()) throw WrongRequest("there are no algorithms; is TUTTI_PLUGIN_PATH right?");
  Request one = request;
  for (uint32_t c = TUTTI_BROADCAST; asked.collective == "all" && c <= last_collective; ++c)
    if (!has_unequal_blocks(c)) tuning.collectives.push_back(c);
  one.collective = asked.collective;
  one.topology.clear();  // it has told the network
  if (asked.collective != "all") tuning.collectives = {collective_of(one)};
  const std::string ranks = request.topology.empty() ? asked.ranks : std::to_string(network.fabric.nranks);
  tuning.ranks = list_of("-n", ranks, "numbers of ranks from 1 to 65536, such as 64,1024",
                         [&](const std::string& text) -> std::optional<uint32_t> {
                           one.ranks = text.empty() ? "none" : text;
                           const Range range = ranks_of(one);
                           return range.first == range.last ? std::optional(range.first) : std::nullopt;
                         });
  tuning.sizes = list_of("--sizes", asked.sizes, "sizes such as 8,64K,1M",
                         [](const std::string& text) { return parse_bytes(text); });
  std::ranges::sort(tuning.sizes);
  for (const uint64_t bytes : tuning.sizes)
    if (bytes % options.element != 0)
      throw WrongRequest(fmt::format("--sizes {}: expected multiples of an element's {} bytes (--element), got {}",
                                     asked.sizes, options.element, bytes));
  for (const uint32_t ranks : tuning.ranks) network.fabric_of(ranks);  // is there room?
  const std::vector<Trial> trials = tune(tuning, network);
  return {options.json ? tuning_json(trials, network) : tuning_table(trials, network),
          asked.plot.empty() ? "" : tuning_plot(trials, network), asked.plot};
}

}  // namespace tutti::plan
