// SPDX-License-Identifier: Apache-2.0
//
// A communicator's calls on device memory: the one object that the communicator has for all of them. A call returns
// when its work is in the stream. It is an operation that is pending until the device has finished it, and meanwhile
// somebody advances what carries bytes for it.
//
//   plan      stream_plans.hpp: the form of the shape's plan
//   channels  stream_channels.hpp: the ways to other processes
//   issue     stream_issue.hpp: the threads of a process put the call into their streams
//   in flight in_flight.hpp: the device carries it out
//
// Threads: whoever holds the communicator's engine, one at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "stream/in_flight.hpp"
#include "stream/stream_channels.hpp"
#include "stream/stream_comm.hpp"
#include "stream/stream_issue.hpp"
#include "stream/stream_plans.hpp"
#include "stream/stream_scratch.hpp"
#include "stream/windows.hpp"

namespace tutti::core {

class Streams {
 public:
  Streams(StreamSetup setup, StreamComm& comm);
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;
  // Memory that devices still use is not freed.
  ~Streams();

  // Puts a collective, or a group of sends and receives, into the call's stream. Both validated by the caller.
  // `blocks`: where they are unequal; not used after the call. Throws Failure.
  void begin(const StreamCall& call, const BlockTable* blocks, const StreamAsker& asker);
  void begin(const StreamCall& call, std::span<const Transfer> transfers, const StreamAsker& asker);
  // Moves channels, and completes the requests whose work the device has finished, oldest first. True when something
  // moved. Throws Failure.
  bool advance();
  // The oldest operation, where the device has begun it and it stands still for longer than its timeout. Throws Failure
  // where the device has failed, which it is asked now and then.
  const StreamOperation* overdue(uint64_t now_ns);
  // After a failure: gives all streams what they wait for, and waits some seconds until the device has finished.
  // Returns the error's words about memory that may still be in use, "; ..." or "".
  std::string release();
  // Where operations were recorded whose replays wait for other processes, gives them what they wait for at this
  // moment; nobody sees when one runs. False: none was.
  bool release_replays();
  // The communicator has ended, and so has all that is pending.
  void fail_all();
  // No call will follow. Unmaps what belongs to other ranks, and takes back what they have mapped. False: streams may
  // still use it, and it stays. `last`, before the transports are closed: this is not tried again, and waits, not for
  // ever, until peers have unmapped this rank's memory.
  bool end(bool last);

  bool has_channels() const { return setup_.has_channels(); }
  bool pending() const { return in_flight_.oldest() || state_ == StreamState::opens || state_ == StreamState::issues; }
  // nullptr: none is pending.
  const StreamOperation* oldest() const { return in_flight_.oldest(); }
  bool is_held_up() const { return in_flight_.is_held_up(); }
  bool is_used_elsewhere() const { return issue_.is_used_elsewhere(); }
  // Where the oldest operation stands, for messages.
  std::string standpoint() const;
  // Bytes that other ranks' memory was read in place for, and those of mapped channels, by peer.
  std::vector<tutti_link_traffic> traffic() const { return channels_.traffic(); }
  Windows& windows() { return *windows_; }

 private:
  template <typename Body>
  void carry_out(StreamCall call, const StreamAsker& asker, Body&& body);
  void abort(const std::exception& problem);
  void require_stream(StreamCall& call) const;
  void await_room();
  void prepare();
  void require_scratch(const StreamPlan& plan);
  void when_idle(const std::function<void()>& body);
  bool synchronise_soon(const std::function<void()>& body);
  void match(std::vector<Transfer>& transfers);
  uint32_t put(const StreamCall& call, StreamPlan& plan);
  uint32_t service_of(StreamPlan& plan);
  void notify_peers();
  bool release_flags();

  const StreamSetup setup_;
  StreamComm& comm_;
  DeviceGate::User gate_;
  std::unique_ptr<PeerMemory> memory_;
  StreamChannels channels_;
  std::unique_ptr<Windows> windows_;
  StreamPlans plans_;
  StreamScratch scratch_;
  InFlight in_flight_;
  StreamIssue issue_;
  StreamState state_ = StreamState::idle;
  uint64_t timeout_ns_ = 0;            // of the call under way
  bool replays_ = false;               // operations were recorded whose replays wait for other processes
  std::vector<const char*> carriers_;  // of the transfers that begin
  // Ranks to be told of a plan's first use, once their links are there.
  struct News {
    Call call;
    Link* link;
  };
  std::vector<News> news_;
};

}  // namespace tutti::core
