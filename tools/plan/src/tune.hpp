// SPDX-License-Identifier: Apache-2.0
//
// The algorithms of collectives against each other in a network: who wins for which size and number of ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "simulate.hpp"

namespace tutti::plan {

struct Tuning {
  std::vector<uint32_t> collectives, ranks;
  std::vector<const tutti_algorithm*> algorithms;
  std::vector<uint64_t> sizes;  // bytes of a block, rising
  SimulationShape shape;        // but for block_bytes
  uint32_t lanes = 8;
  std::shared_ptr<const tutti_topology> topology;  // of the ranks; nullptr: not known
  uint64_t most_steps = 0;  // of one simulation, in all slices
};

// One algorithm for one size and number of ranks.
struct Trial {
  uint32_t collective = 0, ranks = 0;
  uint64_t bytes = 0;
  std::string algorithm;
  double seconds = 0;
  uint64_t slices = 1;
  std::string refused;  // not empty: it was not simulated, and why
};

std::vector<Trial> tune(const Tuning& tuning, const NetworkFile& network);

std::string tuning_table(const std::vector<Trial>& trials, const NetworkFile& network);
std::string tuning_json(const std::vector<Trial>& trials, const NetworkFile& network);
// An SVG: time over size, a panel for each collective and number of ranks.
std::string tuning_plot(const std::vector<Trial>& trials, const NetworkFile& network);

}  // namespace tutti::plan
