// SPDX-License-Identifier: Apache-2.0
//
// A communicator's calls on device memory (streams.hpp), put together of their parts:
//
//   plan      stream_plans.hpp: the form of the shape's plan
//   channels  stream_channels.hpp: the ways to other processes
//   issue     stream_issue.hpp: the threads of a process put the call into their streams
//   in flight in_flight.hpp: the device carries it out
//
// Threads: the one that holds the communicator's engine.
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
#include "stream/streams.hpp"
#include "stream/windows.hpp"

namespace tutti::core {

class DeviceStreams final : public Streams {
 public:
  DeviceStreams(StreamSetup setup, StreamComm& comm);

  void begin(const StreamCall& call, const BlockTable* blocks, const StreamAsker& asker) override;
  void begin(const StreamCall& call, std::span<const Transfer> transfers, const StreamAsker& asker) override;
  bool advance() override;
  const StreamOperation* overdue(uint64_t now_ns) override;
  std::string release() override;
  bool release_replays() override;
  void fail_all() override;
  bool end(bool last) override;
  bool close() override;
  std::string share(tutti_window& window, const Until& until) override { return windows_.share(window, until); }
  void drop(tutti_window& window, const Until& until) override { windows_.drop(window, until); }
  void release_pending_windows() override { windows_.release_pending(); }
  bool has_channels() const override { return setup_.has_channels(); }
  bool pending() const override {
    return in_flight_.oldest() || state_ == StreamState::opens || state_ == StreamState::issues;
  }
  const StreamOperation* oldest() const override { return in_flight_.oldest(); }
  bool is_held_up() const override { return in_flight_.is_held_up(); }
  std::string standpoint() const override;
  std::vector<tutti_link_traffic> traffic() const override { return channels_.traffic(); }

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
  PeerMemory memory_;
  StreamChannels channels_;
  Windows windows_;
  StreamPlans plans_;
  StreamScratch scratch_;
  InFlight in_flight_;
  StreamIssue issue_;
  StreamState state_ = StreamState::idle;
  uint64_t timeout_ns_ = 0;            // of the call under way
  bool replays_ = false;               // operations were recorded whose replays wait for other processes
  std::vector<const char*> carriers_;  // of the transfers that begin
  // Peers to be notified of a plan's first use, once their links are connected.
  struct FirstUseNotice {
    Call call;
    Link* link;
  };
  std::vector<FirstUseNotice> notices_;
};

}  // namespace tutti::core
