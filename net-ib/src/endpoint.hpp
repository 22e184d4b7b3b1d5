// SPDX-License-Identifier: Apache-2.0
//
// transport/1's endpoint: checks arguments, polls the rails, hands completions to links and over to the core.
// connecting.cpp has how links come about.
#pragma once

#include <tutti/plugin/transport.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tutti/sdk/endpoint_base.hpp>
#include <tutti/sdk/pair_messages.hpp>
#include <tutti/sdk/sleeper.hpp>
#include <vector>

#include "domain.hpp"
#include "link.hpp"
#include "rail.hpp"

namespace tutti::ib {

using Clock = std::chrono::steady_clock;

class Endpoint : public sdk::EndpointBase {
 public:
  Endpoint(Domain& domain, const tutti_endpoint_config& config);
  // Sees off what was completed, for at most kLinger.
  ~Endpoint();

  // transport/1, as plugins/sdk shapes it.
  Link* connect(uint32_t peer);
  void receive_pair(uint32_t peer, std::string_view message);
  uint32_t post(std::span<const tutti_transfer> transfers);
  uint32_t progress(std::span<tutti_completion> completions);
  void fail_peer(uint32_t peer);
  void abort();
  bool send_control(Link& link, std::string_view message);
  // rails/1.
  std::vector<sdk::RailFacts> rail_facts() const;
  // wait_fd/1.
  int wait_fd() const { return sleeper_.descriptor(); }
  bool arm();
  void disarm() noexcept;

  // For links and paths.
  const Domain& domain() const { return domain_; }
  const Settings& settings() const { return domain_.settings(); }
  const Shape& shape() const { return shape_; }
  sdk::Completions& completions() { return completions_; }
  void report_lost(uint32_t peer, const std::string& reason);
  void wants_flush(Path& path);
  void wants_advance(Link& link);
  // What the peer sent over other rails may still lie in their completion queues: those are drained first.
  void said_goodbye(Link& link) { leaving_.push_back(&link); }
  void path_failed(Path& path, const std::string& reason);
  // From close_endpoint on the memory of pending transfers may be gone: nothing reads or writes it.
  bool is_closing() const { return closing_; }

 private:
  struct Peer {
    bool has_offer = false;                      // of ours
    std::vector<std::unique_ptr<Path>> offered;  // by rail, until there is a link
    std::unique_ptr<Link> link;
    std::optional<sdk::Error> error;  // why there is no link, and will be none
  };

  void check(const tutti_transfer& transfer) const;
  Peer& peer_of(uint32_t peer);
  void offer_to(uint32_t peer);
  void on_offer(uint32_t peer, const PairMessage& offer);
  void on_ready(uint32_t peer, const PairMessage& ready);
  void refuse(uint32_t peer, tutti_status status, const std::string& text);
  void fail_connecting(uint32_t peer, tutti_status status, const std::string& text);
  std::vector<Pairing> pairs_with(uint32_t peer, const std::vector<OfferedRail>& theirs) const;
  std::string differences(uint32_t peer, const Shape& theirs) const;
  uint32_t hand_over(std::span<tutti_completion> completions, uint32_t n);
  bool poll(Rail& rail);
  void handle(Rail& rail, const ibv_wc& wc);
  void on_receive(Rail& rail, const ibv_wc& wc);
  void on_sent(const ibv_wc& wc);
  void on_heartbeat(const ibv_wc& wc);
  bool advance();
  void watch_the_clock();
  void settle_failures();
  void advance_links();
  void flush();
  void leave_in_order();
  void report_rails() const;

  Domain& domain_;
  const Shape shape_;
  std::vector<std::unique_ptr<Rail>> rails_;
  sdk::Sleeper sleeper_;
  sdk::PairSender pairs_;
  std::vector<Path*> paths_;  // by id; nullptr once gone
  std::vector<Peer> peers_;
  std::vector<bool> told_idle_;  // by rail: the log has it that it carries nothing to some peer
  std::vector<Path*> unflushed_;
  std::vector<Link*> working_;    // links with something that waits
  std::vector<Link*> leaving_;    // links whose peers said goodbye
  std::vector<uint32_t> failed_;  // ids of paths
  sdk::Completions completions_;
  bool aborted_ = false;
  bool closing_ = false;
  uint32_t polls_ = 0;
  Clock::time_point next_heartbeat_ = Clock::now() + kHeartbeatPeriod;
};

}  // namespace tutti::ib
