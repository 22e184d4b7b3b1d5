// SPDX-License-Identifier: Apache-2.0
//
// A rank that destroys its communicator sends and receives nothing more, so nobody has to wait for it:
//
//   a rank that waits                            the other one
//   asks once, when a receive from it, or a  ->  remembers who asked
//   long send to it, has waited for a while
//                                            <-  when it destroys the communicator: it has told of so many messages of
//                                                its own, and has answered so many of the other's
//   fails, when all of these have come and
//   none was for it
//
// This goes over the control plane, whose messages may overtake those of a link: hence the counts. A receive from any
// rank asks all, and fails when all have left.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "bootstrap/control_plane.hpp"
#include "comm/breakdown.hpp"
#include "engine/p2p/point_to_point.hpp"

namespace tutti::core {

// Threads: the one that holds the communicator's engine.
class Departures {
 public:
  Departures(const PointToPoint& transfers, Breakdown& breakdown, ControlPlane& control)
      : transfers_(transfers), breakdown_(breakdown), control_(control), asked_(control.nranks()) {}
  // To be called now and then: asks, and ends the communicator where a rank has left and a transfer waits for it.
  void look(uint64_t now_ns);
  // A message of another rank. Throws Failure when it is malformed.
  void receive(uint32_t from, std::string_view bytes);
  // This rank leaves. Its transfers are done.
  void leave();

 private:
  void ask(uint32_t rank);
  void answer(uint32_t rank) const;

  const PointToPoint& transfers_;
  Breakdown& breakdown_;
  ControlPlane& control_;
  std::vector<bool> asked_;  // by rank
  bool asked_all_ = false;
  std::vector<uint32_t> askers_;
  Departed departed_;
  bool leaves_ = false;
};

}  // namespace tutti::core
