// SPDX-License-Identifier: Apache-2.0
//
// Descriptions of ranks as the text of a topology file (tutti/topology.hpp): their fields by name
// (rank_description.hpp), with words instead of codes.
#pragma once

#include <string>
#include <vector>

#include "topology/topology.hpp"

namespace tutti::core {

std::string topology_file(const Topology& topology);
// Throws std::runtime_error. `text` may come from anywhere.
std::vector<RankDescription> read_topology_file(const std::string& text);

}  // namespace tutti::core
