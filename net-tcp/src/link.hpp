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
#include <tutti/sdk/network.hpp>
#include <vector>

#include "connection.hpp"
#include "settings.hpp"

namespace tutti::tcp {

class Endpoint;

// A message that arrived before its RECV was posted.
struct Arrived {
  std::unique_ptr<char[]> data;
  uint64_t bytes = 0;
  uint32_t mark = 0;
};

// Both directions of a lane. Counters are modulo 2^32.
struct Lane {
  sdk::Ring<Posted> sends;   // wait for credit or for the socket
  uint32_t sent = 0;         // messages handed to the socket, hence the next sequence number
  uint32_t peer_posted = 0;  // RECVs that the peer has announced
  bool active = false;       // in the socket's list of lanes with SENDs
  bool wanted = false;       // a kWant was sent for the first of `sends`

  sdk::Ring<Posted> receives;  // posted, no message yet
  sdk::Ring<Arrived> arrived;  // messages without a RECV
  uint32_t met = 0;            // messages that have begun to arrive, hence the next sequence number
  uint32_t posted = 0;         // RECVs posted here
  uint32_t told = 0;           // of these, announced to the peer
  bool notice = false;         // in the socket's list of lanes to announce
  bool peer_waits = false;     // the peer waits for the RECV of message `peer_waits_for`
  uint32_t peer_waits_for = 0;

  // Is the RECV of the next message known to be posted?
  bool has_credit() const { return static_cast<int32_t>(peer_posted - sent) > 0; }
  // May the next message, of `bytes`, be sent now?
  bool may_send(uint64_t bytes, uint64_t eager_bytes) const {
    return static_cast<int32_t>(peer_posted + window_for(bytes, eager_bytes) - sent) > 0;
  }
};

class Link : public sdk::NetworkLink<Link, Endpoint> {
 public:
  // Takes sockets that have passed the handshake, ordered by index.
  Link(Endpoint& endpoint, uint32_t peer, std::vector<Stream> sockets);

  // False when the queue is full. The endpoint has checked the arguments.
  bool post_send(const tutti_transfer& transfer);
  bool post_receive(const tutti_transfer& transfer);
  bool take_control(std::string_view message);
  // Completes every pending transfer with `status` and closes the sockets.
  void drop_transfers(tutti_status status);
  using NetworkLink::complete;
  // A socket said goodbye and closed.
  void on_departure();

  Lane& lane(uint32_t index) { return lanes_[index]; }
  uint32_t lanes() const { return static_cast<uint32_t>(lanes_.size()); }
  std::vector<std::unique_ptr<Connection>>& connections() { return connections_; }
  Connection& connection_of(uint32_t lane) { return *connections_[lane % connections_.size()]; }

  // Called by the sockets.
  void on_posted(uint32_t lane, uint32_t posted);
  void on_want(uint32_t lane, uint32_t sequence);
  void message_arrived(uint32_t lane, const Posted& receive, uint64_t bytes, uint32_t mark);  // its RECV was posted
  void message_arrived(uint32_t lane, Arrived message);                                       // no RECV was posted
  Frame data_frame(uint32_t lane, const Posted& send);  // the header of the lane's next message; counts it as sent

 private:
  void activate(uint32_t index);
  void tell_if_due(uint32_t index, uint64_t bytes);
  void meet(uint32_t lane, const Posted& receive, const Arrived& message);
  bool has_pending() const;
  bool expects_peer();

  std::vector<Lane> lanes_;
  std::vector<std::unique_ptr<Connection>> connections_;
};

}  // namespace tutti::tcp
