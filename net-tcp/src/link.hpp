// SPDX-License-Identifier: Apache-2.0
//
// One rank's connection to one peer: the lanes, and the sockets that carry them. Lane l travels on socket l mod
// sockets, which keeps it in order. Control messages travel on socket 0.
#pragma once

#include <tutti/plugin/transport.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/sdk/ring.hpp>
#include <vector>

#include "connection.hpp"
#include "settings.hpp"

namespace tutti::tcp {

class Endpoint;

// A message that arrived before its RECV was posted.
struct Arrived {
  std::unique_ptr<char[]> data;
  uint64_t bytes = 0;
};

// Both directions of a lane. Counters are modulo 2^32.
struct Lane {
  sdk::Ring<Send> sends;     // wait for credit or for the socket
  uint32_t sent = 0;         // messages handed to the socket, hence the next sequence number
  uint32_t peer_posted = 0;  // RECVs that the peer has announced
  bool active = false;       // in the socket's list of lanes with SENDs
  bool wanted = false;       // a kWant was sent for the first of `sends`

  sdk::Ring<Receive> receives;  // posted, no message yet
  sdk::Ring<Arrived> arrived;   // messages without a RECV
  uint32_t met = 0;             // messages that have begun to arrive, hence the next sequence number
  uint32_t posted = 0;          // RECVs posted here
  uint32_t told = 0;            // of these, announced to the peer
  bool notice = false;          // in the socket's list of lanes to announce
  bool peer_waits = false;      // the peer waits for the RECV of message `peer_waits_for`
  uint32_t peer_waits_for = 0;

  // Is the RECV of the next message known to be posted?
  bool has_credit() const { return static_cast<int32_t>(peer_posted - sent) > 0; }
  // May the next message, of `bytes`, be sent now?
  bool may_send(uint64_t bytes, uint64_t eager_bytes) const {
    return static_cast<int32_t>(peer_posted + window_for(bytes, eager_bytes) - sent) > 0;
  }
};

class Link {
 public:
  // Takes sockets that have passed the handshake, ordered by index.
  Link(Endpoint& endpoint, uint32_t peer, std::vector<Stream> sockets);

  // False when the queue is full. The endpoint has checked the arguments.
  bool post_send(const tutti_transfer& transfer);
  bool post_receive(const tutti_transfer& transfer);
  // transport/1's send_control. False when there is no room now. Throws when the peer is lost.
  bool send_control(std::string_view message);

  // Ends every pending transfer with `status` and closes the sockets. Later posts are refused with `status`.
  void end(tutti_status status, const std::string& reason);
  // Calls end() because the peer is lost, and queues a completion record of the loss.
  void lose(const std::string& reason);
  // A socket said goodbye and closed.
  void on_departure();
  // TUTTI_OK until the loss of the peer has been reported. Until then a lost peer has no room.
  tutti_status status() const { return is_silent_ ? TUTTI_OK : status_; }
  void reported() { is_silent_ = false; }

  Endpoint& endpoint() const { return endpoint_; }
  uint32_t peer() const { return peer_; }
  const std::string& reason() const { return reason_; }
  Lane& lane(uint32_t index) { return lanes_[index]; }
  uint32_t lanes() const { return static_cast<uint32_t>(lanes_.size()); }
  std::vector<std::unique_ptr<Connection>>& connections() { return connections_; }
  Connection& connection_of(uint32_t lane) { return *connections_[lane % connections_.size()]; }
  bool is_up() const { return status_ == TUTTI_OK; }

  // Called by the sockets.
  void on_posted(uint32_t lane, uint32_t posted);
  void on_want(uint32_t lane, uint32_t sequence);
  void message_arrived(uint32_t lane, const Receive& receive, uint64_t bytes);  // its RECV was posted
  void message_arrived(uint32_t lane, Arrived message);                         // no RECV was posted
  Frame data_frame(uint32_t lane, uint64_t bytes);  // the header of the lane's next message; counts it as sent

 private:
  void tell_if_due(uint32_t index, uint64_t bytes);
  void meet(uint32_t lane, const Receive& receive, const Arrived& message);
  bool has_pending() const;
  bool expects_peer();

  Endpoint& endpoint_;
  const uint32_t peer_;
  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<Connection>> connections_;
  tutti_status status_ = TUTTI_OK;
  bool is_silent_ = false;  // the peer is lost, and no record has reported it yet
  bool departed_ = false;   // the peer closed its endpoint in order; messages that it sent before can still be received
  std::string reason_;
};

}  // namespace tutti::tcp
