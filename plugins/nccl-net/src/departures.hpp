// SPDX-License-Identifier: Apache-2.0
//
// Comms of frames whose link is gone while requests are pending. NCCL closes a comm with requests pending only when a
// communicator is aborted, and a plugin may end all comms of its endpoint then. So such a comm stays open until its
// requests are done: the peer's farewells end its irecvs, the end of the peer's process fails them. The memory of
// frames is this plugin's, and stays as long.
#pragma once

#include <deque>
#include <memory>
#include <tutti/sdk/departures.hpp>

#include "channel.hpp"

namespace tutti::nccl {

class Departure {
 public:
  Departure(Comm comm, std::unique_ptr<Rooms> rooms, std::deque<void*> requests)
      : rooms_(std::move(rooms)), comm_(std::move(comm)), requests_(std::move(requests)) {}
  // Tests the oldest requests. True when none is pending any more: the comm is closed.
  bool advance();

 private:
  std::unique_ptr<Rooms> rooms_;  // outlives the comm
  Comm comm_;
  std::deque<void*> requests_;
};

// Those that never finish stay until the process ends.
using Departures = sdk::Departures<Departure>;
void leave_behind(Departure departure);
// Continues them for a moment: the farewells that this process has just sent may end some.
void settle_departures();

}  // namespace tutti::nccl
