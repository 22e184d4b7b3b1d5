// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "stream/stream_plans.hpp"

namespace tutti::core {

// A rank's plans, and what they are made with. The rank has no communicator: none of its calls is carried out.
struct PlannedCalls {
  explicit PlannedCalls(StreamSetup given) : setup(std::move(given)) { setup.find_local(); }

  StreamSetup setup;
  DeviceGate::User gate{setup.device, setup.communicator, "the rank"};
  PeerMemory memory{setup.device, setup.mapped_links};
  StreamChannels channels{setup, memory, gate};
  Windows windows{setup, memory, gate};
  StreamPlans plans{setup, channels, windows};
};

}  // namespace tutti::core
