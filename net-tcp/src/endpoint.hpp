// SPDX-License-Identifier: Apache-2.0
//
// transport/1's domain and endpoint: checks arguments, owns links, drives sockets, collects completions.
#pragma once

#include <tutti/plugin/transport.h>

#include <tutti/sdk/ring.hpp>
#include <utility>
// Boost 1.74 needs <utility> first.
#include <boost/asio/io_context.hpp>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "connector.hpp"
#include "link.hpp"
#include "poller.hpp"
#include "settings.hpp"

namespace tutti::tcp {

// One per process and communicator configuration. Asio's context is only the home of its sockets: nothing runs in it.
struct Domain {
  Settings settings = Settings::read();
  std::shared_ptr<const Tls> tls = Tls::make(settings);
  boost::asio::io_context io;
};

class Endpoint {
 public:
  Endpoint(Domain& domain, const tutti_endpoint_config& config);
  // Sees off what was completed, for at most kLinger.
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  // transport/1, as plugins/sdk shapes it.
  std::string address() const { return connector_->address(); }
  Link* connect(uint32_t peer, std::string_view address);
  uint32_t post(std::span<const tutti_transfer> transfers);
  uint32_t progress(std::span<tutti_completion> completions);
  void fail_peer(uint32_t peer);
  void abort();
  // wait_fd/1.
  int wait_fd() const { return poller_.descriptor(); }
  bool arm();
  void disarm() noexcept;

  // For links and sockets.
  const Settings& settings() const { return settings_; }
  const Shape& shape() const { return shape_; }
  std::string says(const std::string& text) const;  // "rank 3: net-tcp: text"
  void log(uint32_t level, const std::string& text) const;
  void complete(uint32_t peer, uint64_t cookie, tutti_status status, uint64_t bytes) {
    completions_.push({{TUTTI_COMPLETION_TRANSFER, status, peer, 0, cookie, bytes, nullptr, 0}, nullptr});
  }
  void deliver_control(uint32_t peer, std::unique_ptr<char[]> data, uint64_t bytes);
  void report_lost(uint32_t peer, const std::string& reason);
  // The socket has something to write: flush() or progress() will.
  void wants_write(Connection& connection) {
    if (connection.in_writers) return;
    connection.in_writers = true;
    writers_.push_back(&connection);
  }
  // Writes what sockets take that did not refuse more last time.
  void flush();
  void closing(Connection& connection);

  // For the connector.
  void establish(uint32_t peer, std::vector<Stream> sockets);
  bool has_link(uint32_t peer) const { return links_[peer] != nullptr; }
  bool is_given_up(uint32_t peer) const { return given_up_[peer] || (links_[peer] && !links_[peer]->is_up()); }

 private:
  struct Pending {
    tutti_completion record;
    std::unique_ptr<char[]> data;  // what record.data points to
  };

  tutti_status check(const tutti_transfer& transfer, std::string* why) const;
  uint32_t hand_over(std::span<tutti_completion> completions, uint32_t n);
  void poll_sockets();
  void poll_events();
  void pump_writers();
  void sweep();
  void check_peer(uint32_t peer) const;
  void leave_in_order();

  const Settings& settings_;
  const uint32_t rank_;
  const std::string name_;
  const Shape shape_;
  Poller poller_;
  std::unique_ptr<Connector> connector_;
  std::vector<std::unique_ptr<Link>> links_;  // by peer
  std::vector<bool> given_up_;                // by peer: fail_peer before there was a link
  std::vector<Connection*> open_;             // sockets that are read
  std::vector<Connection*> writers_;          // sockets with something to write
  std::vector<Connection*> sleepers_;         // sockets that the poller watches for room, while armed
  sdk::Ring<Pending> completions_;
  std::vector<std::unique_ptr<char[]>> handed_over_;  // data of the last batch, until the next progress
  bool has_closed_ = false;                           // open_ and writers_ hold closed sockets
  bool aborted_ = false;
  uint32_t polls_ = 0;
};

}  // namespace tutti::tcp
