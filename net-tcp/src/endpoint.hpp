// SPDX-License-Identifier: Apache-2.0
//
// The domain and the endpoint of transport/1: owns links, drives sockets.
#pragma once

#include <tutti/plugin/transport.h>

#include <memory>
#include <string_view>
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

class Endpoint : public sdk::NetworkEndpoint<Endpoint, Link> {
 public:
  Endpoint(Domain& domain, const tutti_endpoint_config& config);
  // Waits, at most kLinger, until completed messages have left.
  ~Endpoint();

  // transport/1, beside what NetworkEndpoint has.
  void receive_pair(uint32_t peer, std::string_view message);
  void abort();
  // wait_fd/1.
  int wait_fd() const { return sleeper_.descriptor(); }
  bool arm();
  void disarm() noexcept;

  // For NetworkEndpoint.
  Link* link_of(uint32_t peer) const { return links_[peer].get(); }
  Link* reach(uint32_t peer);
  void check_region(const tutti_transfer& transfer) const;
  void advance();
  void flush() { write(false); }
  void give_up(uint32_t peer) { connector_->give_up(peer); }

  // For links and sockets.
  const Settings& settings() const { return settings_; }
  // Notes a socket with something to write, for flush() and advance().
  void wants_write(Connection& connection) {
    if (connection.in_writers) return;
    connection.in_writers = true;
    writers_.push_back(&connection);
  }
  void closing(Connection& connection);

  // For the connector. The sockets of a link are watched before.
  sdk::Sleeper& sleeper() { return sleeper_; }
  void establish(uint32_t peer, std::vector<Stream> sockets);

 private:
  // Writes to all sockets, or to those that were not full the last time.
  void write(bool all);
  void poll_events();
  void sweep();
  void leave_in_order();
  void report_stuck() const noexcept;

  Settings settings_;
  sdk::Sleeper sleeper_;
  std::unique_ptr<Connector> connector_;
  std::vector<std::unique_ptr<Link>> links_;  // by peer
  std::vector<Connection*> open_;             // sockets that are read
  std::vector<Connection*> writers_;          // sockets with something to write
  bool has_closed_ = false;                   // open_ and writers_ hold closed sockets
  uint32_t polls_ = 0;
};

}  // namespace tutti::tcp
