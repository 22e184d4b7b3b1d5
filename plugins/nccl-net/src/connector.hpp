// SPDX-License-Identifier: Apache-2.0
//
// Connecting. Each end listens for the comms by which it will receive, and sends the handles in its Card; each end then
// connects to the other's handles and accepts. An end whose comms are all there says so; the link is made when both
// have.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string_view>
#include <tutti/sdk/card_exchange.hpp>
#include <vector>

#include "link.hpp"
#include "network.hpp"
#include "wire.hpp"

namespace tutti::nccl {

class Connector {
 public:
  Connector(Endpoint& endpoint, const tutti_endpoint_config& config);
  Connector(const Connector&) = delete;
  Connector& operator=(const Connector&) = delete;
  ~Connector() { stop(); }

  void connect(uint32_t peer) { exchange_.connect(peer); }  // throws the error that connecting ended with
  void receive(uint32_t peer, std::string_view message);
  void advance();
  void give_up(uint32_t peer, bool aborts) { exchange_.give_up(peer, aborts); }
  void stop();

 private:
  struct Attempt {
    std::array<Network::Listener, kComms> listeners;
    std::optional<Card> card;  // the peer's
    Comms comms;
    std::unique_ptr<Link> link;  // this end is ready
    bool is_connecting = false;  // connect was called, and a handle may hold what it began
    bool peer_is_ready = false;
    std::chrono::steady_clock::time_point deadline;
  };
  Card make_card(uint32_t peer);
  void on_card(uint32_t peer, const Card& card);
  void step(uint32_t peer);
  void end_connects(Attempt& attempt);
  void drop(uint32_t peer);
  void make_comms(Attempt& attempt);
  void finish(uint32_t peer);

  Endpoint& endpoint_;
  Network& network_;
  const std::chrono::nanoseconds timeout_;
  const int traffic_class_;
  sdk::CardExchange<Card> exchange_;
  std::vector<std::unique_ptr<Attempt>> attempts_;  // by peer
  size_t open_ = 0;                                 // of them
};

}  // namespace tutti::nccl
