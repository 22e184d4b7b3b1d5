// SPDX-License-Identifier: Apache-2.0
//
// A network as a JSON file describes it. docs/simulation.md lists the keys.
#pragma once

#include <string>
#include <vector>

#include "simulation/simulation.hpp"

namespace tutti::plan {

struct NetworkFile {
  std::string path, kind;     // "fat_tree"
  simulation::Fabric fabric;  // nranks is 0
  simulation::Processor processor;
  uint32_t most_hosts = 0;  // that it has room for; 0: any number

  // The same for so many ranks. Throws WrongRequest where there is no room for them.
  simulation::Fabric fabric_of(uint32_t nranks) const;
  // Problem::hosts of them.
  static std::vector<uint32_t> hosts_of(const simulation::Fabric& fabric);
};

// Throws WrongRequest, which says where in the file what was expected, and what came.
NetworkFile read_network(const std::string& path);

}  // namespace tutti::plan
