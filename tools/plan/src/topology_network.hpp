// SPDX-License-Identifier: Apache-2.0
//
// Topology files: the ranks' hosts, and the network that they describe.
#pragma once

#include <string>
#include <tutti/topology.hpp>

#include "network_file.hpp"

namespace tutti::plan {

// Both throw WrongRequest, which names the file and what is wrong in it.
TopologyFile read_topology(const std::string& path);
// Hosts of equal size on one switch: each rank's link inside its host, and as many cards as carry what a host sends to
// others. The costs of processors are those that the core assumes.
NetworkFile network_of_topology(const std::string& path);

}  // namespace tutti::plan
