// SPDX-License-Identifier: Apache-2.0
//
// Calls on device memory: each returns when its work is in the stream. A collective, or a group of sends and receives,
// from the search for its plan to the operation that is pending.
//
// Threads: whoever holds the communicator's engine, one at a time.
#pragma once

#include <tutti/tutti.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/breakdown.hpp"
#include "comm/operations.hpp"
#include "comm/rendezvous.hpp"
#include "comm/waiter.hpp"
#include "engine/p2p/point_to_point.hpp"
#include "stream/stream_runner.hpp"

namespace tutti::core {

class StreamCalls {
 public:
  // The parts that calls use. All of them outlive the calls.
  struct Parts {
    StreamRunner& streams;
    const Topology& topology;
    const DeviceMemory& device;
    Waiter& waiter;
    Breakdown& breakdown;
    Meetings& meetings;
    Operations& operations;
    PointToPoint& point_to_point;
    CallCheck& call_check;
    Reports& reports;
    const Configuration& configuration;
    uint32_t rank;
  };
  explicit StreamCalls(const Parts& parts) : parts_(parts) {}

  // The one that gets to know of the end of a call.
  struct Asker {
    tutti_request** request = nullptr;  // of the application, to be made; nullptr: it wants none
    tutti_request* again = nullptr;     // the persistent one that starts
    tutti_request* group = nullptr;     // the group of calls that this one is a part of
  };
  // Both validated by the caller. `blocks`: where they are unequal; not used after the call.
  tutti_status collective(StreamCall call, const BlockTable* blocks, const Asker& asker);
  tutti_status exchange(StreamCall call, std::span<const Transfer> transfers, const Asker& asker);

  // Moves what is pending; true when something moved.
  bool advance();
  // After a failure: lets the device's work come to its end, so that nothing of ours is in use any more. Returns what
  // the error has to say where it does not, or "".
  std::string let_go();
  // Completes all that is pending.
  void fail_all(tutti_status status);

 private:
  StreamPlan& open(const StreamCall& call, StreamPlan& plan, const Call& mine, Patience& patience);
  template <typename Work>
  void put(const StreamCall& call, Work& work, Patience& patience);
  [[noreturn]] void end_issue(const Failure& failure);
  void match(std::vector<Transfer>& transfers);
  void check(const Call& mine, const BlockTable& blocks, Patience& patience);
  void tell();
  void await_device(Patience& patience);
  uint32_t service(StreamPlan& plan);
  template <typename Kind>
  Operations::Request make(const StreamCall& call, const Asker& asker);
  tutti_status issued(Operations::Request made, const Asker& asker);

  const Parts parts_;
  // Ranks to be told of a plan's first use, once their links are there.
  struct Untold {
    Call call;
    Link* link;
  };
  std::vector<Untold> untold_;
};

}  // namespace tutti::core
