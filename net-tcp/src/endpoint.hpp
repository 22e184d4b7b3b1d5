// SPDX-License-Identifier: Apache-2.0
//
// The domain and the endpoint of transport/1: checks arguments, owns links, drives sockets, collects completions.
#pragma once

#include <tutti/plugin/transport.h>

#include <memory>
#include <span>
#include <string_view>
#include <tutti/sdk/endpoint_base.hpp>
#include <vector>

#include "connector.hpp"
#include "link.hpp"
#include "settings.hpp"

namespace tutti::tcp {

// One per process and communicator configuration.
struct Domain {
  Settings settings = Settings::read();
  std::shared_ptr<const sdk::Tls> tls = sdk::Tls::make("net-tcp", sdk::config);
};

class Endpoint : public sdk::EndpointBase {
 public:
  Endpoint(Domain& domain, const tutti_endpoint_config& config);
  // Waits, at most kLinger, until completed messages have left.
  ~Endpoint();

  // transport/1, as sdk::make_transport expects it.
  Link* connect(uint32_t peer);
  void receive_pair(uint32_t peer, std::string_view message);
  uint32_t post(std::span<const tutti_transfer> transfers);
  uint32_t progress(std::span<tutti_completion> completions);
  void fail_peer(uint32_t peer);
  void abort();
  // wait_fd/1.
  int wait_fd() const { return sleeper_.descriptor(); }
  bool arm();
  void disarm() noexcept;

  // For links and sockets.
  const Settings& settings() const { return settings_; }
  sdk::Completions& completions() { return completions_; }
  void report_lost(uint32_t peer, const std::string& reason);
  // Notes a socket with something to write, for flush() and progress().
  void wants_write(Connection& connection) {
    if (connection.in_writers) return;
    connection.in_writers = true;
    writers_.push_back(&connection);
  }
  // Writes to all sockets, or to those that were not full the last time.
  void flush(bool all = false);
  void closing(Connection& connection);

  // For the connector.
  void establish(uint32_t peer, std::vector<Stream> sockets);
  bool has_link(uint32_t peer) const { return links_[peer] != nullptr; }
  bool is_given_up(uint32_t peer) const {
    return aborted_ || given_up_[peer] || (links_[peer] && !links_[peer]->is_up());
  }
  void lose(uint32_t peer, const std::string& reason) { links_[peer]->lose(reason); }

 private:
  void check(const tutti_transfer& transfer) const;
  uint32_t hand_over(std::span<tutti_completion> completions, uint32_t n);
  void poll_sockets();
  void poll_events();
  void sweep();
  void leave_in_order();

  const Settings settings_;
  sdk::Sleeper sleeper_;
  std::unique_ptr<Connector> connector_;
  std::vector<std::unique_ptr<Link>> links_;  // by peer
  std::vector<bool> given_up_;                // by peer: fail_peer was called before there was a link
  std::vector<Connection*> open_;             // sockets that are read
  std::vector<Connection*> writers_;          // sockets with something to write
  sdk::Completions completions_;
  bool has_closed_ = false;  // open_ and writers_ hold closed sockets
  bool aborted_ = false;
  uint32_t polls_ = 0;
};

}  // namespace tutti::tcp
