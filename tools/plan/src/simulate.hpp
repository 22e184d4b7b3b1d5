// SPDX-License-Identifier: Apache-2.0
//
// One simulation of an algorithm in a network, and its report.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "network_file.hpp"
#include "simulation/simulation.hpp"

namespace tutti::plan {

// The options beside the algorithm and the ranks, as typed.
struct SimulationOptions {
  std::string network, size = "1M", slices = "auto", memory = "16G", svg;
  uint32_t element = 4;
  bool json = false;
};

struct SimulationShape {
  uint64_t block_bytes = 0, memory = 0;
  uint32_t element_bytes = 4;
  uint64_t slices = 0;  // 0: as many as the core would take, within limits
};
// Throws WrongRequest.
SimulationShape shape_of(const SimulationOptions& options);

struct Simulated {
  Problem problem;
  std::string title;
  uint64_t block_bytes = 0, slices = 1;
  simulation::Result result;
  double compile_seconds = 0, run_seconds = 0;  // of this program
  uint64_t memory = 0;                          // of the schedules and the run, about
};

// Places the ranks of a problem on the hosts of the fabric and simulates. Throws WrongRequest where the algorithm does
// not serve, std::runtime_error where its schedules are wrong or too large.
Simulated simulate(const tutti_algorithm& algorithm, Problem problem, const NetworkFile& network,
                   const SimulationShape& shape);

std::string report(const Simulated& simulated, const NetworkFile& network);
std::string report_json(const Simulated& simulated, const NetworkFile& network);
// An SVG: each link's utilisation, a strip for each class of links.
std::string draw_utilisation(const Simulated& simulated, const NetworkFile& network);

// Of links of one class: bytes and share of the time in which they were busy.
struct Utilisation {
  std::string name;
  uint32_t first = 0, links = 0, busiest = 0;  // numbers among all links of the network
  uint64_t bytes = 0;
  double mean = 0, most = 0;
  std::vector<double> of_link;
};
std::vector<Utilisation> utilisations(const Simulated& simulated, const simulation::Network& network);

}  // namespace tutti::plan
