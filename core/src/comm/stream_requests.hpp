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

#include "comm/operations.hpp"
#include "comm/rendezvous.hpp"
#include "comm/waiter.hpp"
#include "stream/stream_comm.hpp"

namespace tutti::core {

class ProgressEngine;

class StreamRequests final : public StreamComm {
 public:
  explicit StreamRequests(ProgressEngine& engine) : engine_(engine) {}

  void open(uint64_t timeout_ns, const StreamAsker& asker) override;
  void progress() override;
  bool turn(bool excused) override;
  void await(const std::function<bool()>& enough) override;
  std::vector<std::string> gather(const std::string& mine) override;
  void enter(Call& mine, const Plan& plan, uint32_t service) override;
  std::vector<Transfer>& enter(std::span<const Transfer> transfers, uint32_t service) override;
  tutti_request* pend(uint32_t service, bool runs) override;
  bool complete(tutti_request& request) override;
  bool has_ended() const override;
  void require_sound() override;
  void fail(const std::exception& problem, StreamState at, const std::string& in_use) override;
  void drain() override;

 private:
  template <typename Kind>
  void make(uint32_t service);
  JointCall meeting(std::string what) {
    return {std::move(what), *patience_, collective_ ? std::optional(collective_->sequence) : std::nullopt};
  }

  ProgressEngine& engine_;
  // The call under way.
  std::optional<Patience> patience_;
  uint32_t fruitless_ = 0;  // polls of its waits
  StreamAsker asker_;
  std::optional<Call> collective_;
  Operations::Request made_;
};

}  // namespace tutti::core
