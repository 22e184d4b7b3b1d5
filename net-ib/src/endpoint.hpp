// SPDX-License-Identifier: Apache-2.0
//
// transport/1's endpoint: checks arguments, polls the rails, hands completions to links and over to the core.
#pragma once

#include <tutti/plugin/transport.h>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <tutti/sdk/ring.hpp>
#include <vector>

#include "domain.hpp"
#include "greeter.hpp"
#include "link.hpp"
#include "rail.hpp"
#include "sleeper.hpp"

namespace tutti::ib {

class Endpoint {
 public:
  Endpoint(Domain& domain, const tutti_endpoint_config& config);
  // Sees off what was completed, for at most kLinger.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // transport/1, as plugins/sdk shapes it.
  std::string address() const { return greeter_->address(); }
  Link* connect(uint32_t peer, std::string_view address);
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

  // For links, paths and the greeter.
  const Domain& domain() const { return domain_; }
  const Settings& settings() const { return domain_.settings(); }
  const Shape& shape() const { return shape_; }
  const std::vector<std::unique_ptr<Rail>>& rails() const { return rails_; }
  std::string says(const std::string& text) const;  // "rank 3: net-ib: text"
  void log(uint32_t level, const std::string& text) const;
  void complete(uint32_t peer, uint64_t cookie, tutti_status status, uint64_t bytes) {
    completions_.push({{TUTTI_COMPLETION_TRANSFER, status, peer, 0, cookie, bytes, nullptr, 0}, nullptr});
  }
  void deliver_control(uint32_t peer, const char* data, uint64_t bytes);
  void report_lost(uint32_t peer, const std::string& reason);
  void wants_flush(Path& path);
  void wants_advance(Link& link);
  // What the peer sent over other rails may still lie in their completion queues: those are drained first.
  void said_goodbye(Link& link) { leaving_.push_back(&link); }
  void path_failed(Path& path, const std::string& reason);
  std::unique_ptr<Path> make_path(Rail& rail, uint32_t index);
  // An address handle must outlive the datagrams sent with it.
  const AddressHandle& keep(AddressHandle handle);
  void establish(uint32_t peer, std::vector<std::unique_ptr<Path>> paths, bool ready);
  // From close_endpoint on the memory of pending transfers may be gone: nothing reads or writes it.
  bool is_closing() const { return closing_; }
  bool has_link(uint32_t peer) const { return links_[peer] != nullptr; }
  bool is_given_up(uint32_t peer) const { return given_up_[peer] || (links_[peer] && !links_[peer]->is_up()); }

 private:
  struct Pending {
    tutti_completion record;
    std::unique_ptr<char[]> data;  // what record.data points to
  };

  tutti_status check(const tutti_transfer& transfer, std::string* why) const;
  void check_peer(uint32_t peer) const;
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
  const uint32_t rank_;
  const std::string name_;
  const Shape shape_;
  std::vector<std::unique_ptr<Rail>> rails_;
  Sleeper sleeper_;
  std::unique_ptr<Greeter> greeter_;
  std::vector<Path*> paths_;                  // by id; nullptr once gone
  std::vector<std::unique_ptr<Link>> links_;  // by peer
  std::vector<bool> given_up_;                // by peer: fail_peer before there was a link
  std::deque<AddressHandle> kept_;
  std::vector<Path*> unflushed_;
  std::vector<Link*> working_;    // links with something that waits
  std::vector<Link*> leaving_;    // links whose peers said goodbye
  std::vector<uint32_t> failed_;  // ids of paths
  sdk::Ring<Pending> completions_;
  std::vector<std::unique_ptr<char[]>> handed_over_;  // data of the last batch, until the next progress
  bool aborted_ = false;
  bool closing_ = false;
  uint32_t polls_ = 0;
  Clock::time_point next_heartbeat_ = Clock::now() + kHeartbeatPeriod;
};

}  // namespace tutti::ib
