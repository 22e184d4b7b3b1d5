// SPDX-License-Identifier: Apache-2.0
//
// A topology as an SVG: hosts as boxes, NUMA nodes and ranks in them, and what connects them.
#pragma once

#include <string>
#include <tutti/topology.hpp>

namespace info {

std::string draw_topology(const tutti::TopologyFile& topology);

}  // namespace info
