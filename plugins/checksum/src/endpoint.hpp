// SPDX-License-Identifier: Apache-2.0
//
// An endpoint that seals what it sends and opens what arrives. Each message is copied at both ends.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <tutti/sdk/interposer.hpp>
#include <unordered_map>
#include <vector>

#include "seal.hpp"

namespace tutti::checksum {

using sdk::Interposer;

class Endpoint : public Interposer::Endpoint {
 public:
  Endpoint(Interposer::Domain& domain, const tutti_endpoint_config& config, tutti_endpoint* inner,
           uint64_t inner_inline_bytes);

  tutti_status post(const tutti_transfer& transfer) override;
  tutti_status progress(tutti_completion* completions, uint32_t capacity, uint32_t* n) override;
  // A sleep would leave the messages that wait here where they are.
  tutti_status arm() override { return waiting_ ? tutti_status{TUTTI_AGAIN} : Interposer::Endpoint::arm(); }

 private:
  friend class Link;
  // One direction pair of a lane, or of the control messages.
  struct Way {
    uint64_t sent = 0, received = 0;  // numbers of the next messages
    std::deque<uint64_t> waiting;     // records of sends that the wrapped transport has refused
  };
  struct Peer {
    std::vector<Way> lanes;
    Way control;
  };
  // A transfer of the caller's, and the memory in which its message is sealed or arrives.
  struct Record {
    tutti_transfer transfer{};
    uint32_t peer = 0;
    bool silent = false;  // INLINE: it has completed for the caller
    std::unique_ptr<std::byte[]> message;
  };
  // The peer may have connected first.
  Peer& peer_of(uint32_t peer);
  tutti_status hand_over(uint64_t id);
  void hand_over_waiting();
  void finish(const tutti_completion& completion);
  void open_control(const tutti_completion& completion);

  const uint64_t inner_inline_bytes_;
  std::map<uint32_t, Peer> peers_;
  std::unordered_map<uint64_t, Record> records_;
  uint64_t next_record_ = 1;
  uint64_t waiting_ = 0;
  std::string defect_;                  // of a message that arrived: the endpoint's error
  std::deque<tutti_completion> ready_;  // for the caller
  std::deque<std::string> texts_;       // what ready_ and the last answers point to
};

class Link : public Interposer::Link {
 public:
  using Interposer::Link::Link;
  tutti_status send_control(const void* data, uint64_t bytes) override;
};

}  // namespace tutti::checksum
