// SPDX-License-Identifier: Apache-2.0
//
// How a rank's call gets into its stream. The ranks of a process meet for a collective, and for what they send each
// other. Pending operations advance while they wait.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "stream/in_flight.hpp"
#include "stream/local_rendezvous.hpp"
#include "stream/stream_channels.hpp"
#include "stream/stream_comm.hpp"
#include "stream/stream_scratch.hpp"
#include "stream/stream_transfer.hpp"
#include "stream/windows.hpp"

namespace tutti::core {

class StreamIssue {
 public:
  StreamIssue(const StreamSetup& setup, StreamComm& comm, DeviceGate::User& gate, StreamChannels& channels,
              Windows& windows, StreamScratch& scratch, InFlight& in_flight);
  StreamIssue(const StreamIssue&) = delete;
  StreamIssue& operator=(const StreamIssue&) = delete;

  // Before the first call, in the device's gate: has it read memory of the process's other devices, where it can.
  void enable_peers();
  // Puts the begun operation into the stream. Throws Failure, and then abort() is next.
  void put(const StreamCall& call, StreamPlan& plan, const WindowPlaces& places);
  void put(const std::vector<Transfer>& transfers);
  void abort();
  // Is another rank's thread still putting the work of an aborted call into the stream? It uses what this one has.
  bool is_used_elsewhere() const { return rendezvous_->issuer().has_value(); }
  // "all_reduce(...) on device cuda, at fragment 3 to rank 1 over tcp", of the oldest operation, for messages.
  std::string standpoint() const;
  // The end. Where the communicator has failed streams of other ranks may still wait for events of this one.
  void release_events(bool failed);

 private:
  // A call's way into or out of a slot, and the number of the operation's first fragment among the channel's.
  using OpenWay = std::pair<StreamChannel*, uint64_t>;

  void copy_to_output(const StreamCall& call, const StreamPlan& plan);
  StreamSlot slot_of(uint32_t way, uint64_t number) const;
  void wait_here();
  bool wait_for_issuer();
  void require_peers(uint64_t place);
  void withdraw(const Failure& why);

  const StreamSetup& setup_;
  StreamComm& comm_;
  DeviceGate::User& gate_;
  StreamChannels& channels_;
  Windows& windows_;
  StreamScratch& scratch_;
  InFlight& in_flight_;
  const std::shared_ptr<LocalRendezvous> rendezvous_;
  std::map<uint32_t, Failure> unreadable_;  // devices of this process's ranks that this rank's cannot read
  std::vector<tutti_event*> spare_;         // for use within an issue
  StreamWriter writer_;                     // for exchanges: collectives are written at the rendezvous
  std::vector<OpenWay> ways_;               // of the plan's traffic
  const WindowPlaces* places_ = nullptr;
  StreamLaunch launch_;
  StreamExchange exchange_;
};

}  // namespace tutti::core
