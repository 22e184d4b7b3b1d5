// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/call_timeout.hpp"
#include "engine/fabric/devices.hpp"
#include "engine/fabric/window.hpp"
#include "engine/plan/planner.hpp"
#include "topology/topology.hpp"

namespace tutti::core {

class CallCheck;
class PointToPoint;
class Reports;

// The parts of a communicator that a rank's streams use. All of them outlive the streams.
struct StreamSetup {
  uint32_t rank = 0;
  DeviceMemory device;  // the rank's
  const Topology* topology = nullptr;
  Planner* planner = nullptr;
  std::vector<Link>* links = nullptr;
  uint32_t first_lane = 0;  // of the transport, for channels
  uint32_t lanes = 0;       // of collectives; sends and receives use the one behind them
  uint64_t communicator = 0;
  std::string name;     // of the communicator, for messages
  CallTimeout timeout;  // of the communicator
  std::vector<Link>* mapped_links = nullptr;
  bool named = false;    // the application has named the transports
  bool in_host = false;  // what transports carry goes through host memory
  uint64_t scratch_limit = 0;
  const WindowList* windows = nullptr;  // that are registered
  PointToPoint* point_to_point = nullptr;
  CallCheck* call_check = nullptr;
  Reports* reports = nullptr;
  std::vector<uint32_t> local = {};  // ranks of this process, by find_local()

  bool is_local(uint32_t peer) const { return topology->same_process(peer, rank); }
  void find_local() {
    for (uint32_t r = 0; r < topology->nranks(); ++r)
      if (is_local(r)) local.push_back(r);
  }
  // Does the rank exchange bytes with ranks of other processes, so that a thread has to advance it meanwhile?
  bool has_channels() const { return local.size() < topology->nranks(); }
};

}  // namespace tutti::core
