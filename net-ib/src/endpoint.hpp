// SPDX-License-Identifier: Apache-2.0
//
// transport/1's endpoint: polls the rails and hands completions to links. connecting.cpp connects links.
#pragma once

#include <tutti/plugin/transport.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/sdk/card_exchange.hpp>
#include <tutti/sdk/sleeper.hpp>
#include <vector>

#include "domain.hpp"
#include "link.hpp"
#include "rail.hpp"

namespace tutti::ib {

class Endpoint : public sdk::NetworkEndpoint<Endpoint, Link> {
 public:
  Endpoint(Domain& domain, const tutti_endpoint_config& config);
  // Waits, at most kLinger, until completed messages have left.
  ~Endpoint();

  // transport/1, beside what NetworkEndpoint has.
  void receive_pair(uint32_t peer, std::string_view message);
  // rails/1.
  std::vector<sdk::RailFacts> rail_facts() const;
  // wait_fd/1.
  int wait_fd() const { return sleeper_.descriptor(); }
  bool arm();
  void disarm() noexcept;

  // For NetworkEndpoint. True from advance(): something came.
  Link* link_of(uint32_t peer) const { return peers_[peer].link.get(); }
  Link* reach(uint32_t peer);
  void check_region(const tutti_transfer& transfer) const;
  bool advance();
  void flush();
  void give_up(uint32_t peer) { exchange_.give_up(peer, is_aborted()); }

  // For links and paths.
  const Domain& domain() const { return domain_; }
  const Settings& settings() const { return domain_.settings(); }
  void wants_flush(Path& path);
  void wants_advance(Link& link);
  // Ends the link once all completion queues are empty: they may hold frames that the peer sent over other rails.
  void said_goodbye(Link& link) { leaving_.push_back(&link); }
  void path_failed(Path& path, const std::string& reason);
  std::vector<Path*>& paths() { return paths_; }
  void send_pair(uint32_t peer, std::string message) { exchange_.send(peer, std::move(message)); }
  // The pairs of these rails; at least one. Throws sdk::Error.
  std::vector<Pairing> pairs_with(uint32_t peer, const std::vector<OfferedRail>& own,
                                  const std::vector<OfferedRail>& theirs) const;
  // While closing, the memory of pending transfers may be gone: it is no longer accessed.
  bool is_closing() const { return closing_; }

 private:
  struct Peer {
    std::vector<std::unique_ptr<Path>> offered;  // by rail and queue pair, until there is a link
    std::unique_ptr<Link> link;
  };

  Offer make_offer(uint32_t peer);
  void on_offer(uint32_t peer, const Offer& offer);
  void on_ready(uint32_t peer, uint32_t connected);
  void drop(uint32_t peer);
  void look_at_rails();
  bool poll(Rail& rail);
  void handle(Rail& rail, const ibv_wc& wc);
  void on_receive(Rail& rail, const ibv_wc& wc);
  void settle_failures();
  void leave_in_order();

  Domain& domain_;
  std::vector<std::unique_ptr<Rail>> rails_;
  sdk::Sleeper sleeper_;
  sdk::CardExchange<Offer> exchange_;
  std::vector<Path*> paths_;  // by id; nullptr once gone
  std::vector<Peer> peers_;
  std::vector<bool> told_idle_;  // by rail: a warning says that it carries nothing to some peer
  std::vector<Path*> unflushed_;
  std::vector<Link*> working_;    // links with waiting sends or notes
  std::vector<Link*> leaving_;    // links with a goodbye from the peer
  std::vector<uint32_t> failed_;  // ids of paths
  bool closing_ = false;
  uint32_t polls_ = 0;
  Clock::time_point next_look_ = Clock::now();
  Clock::time_point next_heartbeat_ = Clock::now() + kHeartbeatPeriod;
};

}  // namespace tutti::ib
