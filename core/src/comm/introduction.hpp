// SPDX-License-Identifier: Apache-2.0
//
// How ranks introduce themselves when a communicator is made, and how their words are compared. They gather three
// times, and once more where rank 0 sends its tuning file:
//
//   agree()             the settings that must be equal, and the algorithms, which are used where all ranks have them
//   HostReach           who reaches whom on a host (host_reach.hpp)
//   RankDescription     where each rank runs, its device and what its transports offer: all ranks compute the same
//                       topology from that (topology/rank_description.hpp)
//
// Nothing that another rank says is trusted: an impossible value becomes a Failure that names the rank.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "comm/configuration.hpp"
#include "engine/choose/native.hpp"
#include "engine/fabric/devices.hpp"
#include "topology/topology.hpp"

namespace tutti::core {

// The result of agree(), the same on all ranks.
struct Agreement {
  uint64_t communicator = 0;  // a number of the communicator, the same on all ranks
  std::vector<const tutti_algorithm*> algorithms;
  std::vector<const tutti_collective*> collectives;
  bool devices = false;                  // some rank is bound to one
  bool traces = false;                   // some rank writes a trace
  std::shared_ptr<const Tuning> tuning;  // rank 0's file; nullptr: it has none
};
// Collective. Throws Failure where the ranks disagree.
Agreement agree(uint32_t rank, const Configuration& configuration, const DeviceMemory& device, bool traces,
                const Gather& gather);

// This process, bound to `device`; without what its transports offer.
RankDescription describe_process(const DeviceMemory& device);

}  // namespace tutti::core
