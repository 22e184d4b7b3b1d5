// SPDX-License-Identifier: Apache-2.0
//
// The communicator as its streams see it (stream_comm.hpp): their calls wait, meet, become requests and fail as all
// others do.
//
// Threads: the one that holds the communicator's engine.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/breakdown.hpp"
#include "comm/operations.hpp"
#include "comm/rendezvous.hpp"
#include "comm/waiter.hpp"
#include "engine/check/call_check.hpp"
#include "engine/fabric/fabric.hpp"
#include "record/reports.hpp"
#include "stream/stream_comm.hpp"

namespace tutti::core {

class StreamRequests final : public StreamComm {
 public:
  // The parts that calls use. All of them outlive the calls.
  struct Parts {
    Waiter& waiter;
    Breakdown& breakdown;
    Meetings& meetings;
    Operations& operations;
    CallCheck& call_check;
    Reports& reports;
    Fabric& fabric;
    PortEvents& events;
    uint32_t rank;
  };
  explicit StreamRequests(const Parts& parts) : parts_(parts) {}

  void open(uint64_t timeout_ns, const StreamAsker& asker) override;
  void progress() override { parts_.waiter.progress(); }
  bool turn(bool excused) override;
  void await(const std::function<bool()>& enough) override { parts_.meetings.await(meeting({}), enough); }
  std::vector<std::string> gather(const std::string& mine) override;
  void enter(Call& mine, const Plan& plan, uint32_t service) override;
  std::vector<Transfer>& enter(std::span<const Transfer> transfers, uint32_t service) override;
  tutti_request* pend(uint32_t service, bool runs) override;
  bool complete(tutti_request& request) override;
  bool has_ended() const override { return parts_.breakdown.begun(); }
  void require_sound() override { parts_.breakdown.require_none(); }
  void fail(const std::exception& problem, StreamState at, const std::string& in_use) override;
  void drain() override;

 private:
  template <typename Kind>
  void make(uint32_t service);
  JointCall meeting(std::string what) {
    return {std::move(what), *patience_, collective_ ? std::optional(collective_->sequence) : std::nullopt};
  }

  const Parts parts_;
  // The call under way.
  std::optional<Patience> patience_;
  std::optional<Waiter::Round> round_;  // of its waits
  StreamAsker asker_;
  std::optional<Call> collective_;
  Operations::Request made_;
};

}  // namespace tutti::core
