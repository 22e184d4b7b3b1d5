// SPDX-License-Identifier: Apache-2.0
//
// One rank's connection to one peer. Lanes share the comms. A short message travels in a frame, which the receiver
// always takes; it keeps up to kWindow messages of a lane for which there is no RECV yet. A long message is announced
// by a frame; the receiver asks for it when it has met its RECV. So no lane holds up another, and every message lies
// where it belongs when its request ends.
#pragma once

#include <tutti/plugin/transport.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <tutti/sdk/network.hpp>
#include <vector>

#include "channel.hpp"
#include "in_order.hpp"
#include "wire.hpp"

namespace tutti::nccl {

class Endpoint;

struct Lane {
  sdk::Ring<Posted> waiting;   // SENDs that have not left, for lack of window or room
  std::deque<Bulk> announced;  // SENDs that the peer has not asked for yet
  InOrder sends;               // all that have begun to leave
  uint32_t sent = 0;
  uint32_t taken_by_peer = 0;

  struct Arrived {
    Frame frame;
    std::unique_ptr<char[]> data;
  };
  sdk::Ring<Arrived> arrived;  // messages without a RECV
  sdk::Ring<Posted> posted;    // RECVs without a message
  InOrder receives;            // all that have met theirs
  uint32_t taken = 0;
  uint32_t told = 0;  // of these, told the peer

  bool may_send() const { return static_cast<int32_t>(taken_by_peer + kWindow - sent) > 0; }
};

// The connected comms of one rank, as the connector makes them.
struct Comms {
  std::array<Comm, kComms> send, receive;
  bool is_whole() const {
    return send[kFrames].is_open() && send[kBulk].is_open() && receive[kFrames].is_open() && receive[kBulk].is_open();
  }
};

class Link : public sdk::NetworkLink<Link, Endpoint> {
 public:
  // `eager_bytes`: up to this size a message travels in a frame.
  Link(Endpoint& endpoint, uint32_t peer, Comms comms, uint64_t eager_bytes);
  ~Link() { close(); }

  // False when there is no room. The endpoint has checked the arguments.
  bool post_send(const tutti_transfer& transfer);
  bool post_receive(const tutti_transfer& transfer);
  bool take_control(std::string_view message);
  void drop_transfers(tutti_status status);
  // transport/1's flush.
  bool flush(tutti_region* region, const void* data, uint64_t bytes);

  // To be called before the peer can have its link: a peer that does nothing but close has a receive to send to.
  void post_receives() { frames_in_.post(); }
  // Sends what can be sent; receives.
  void send();
  void advance();
  // Orderly end: tells the peer, after everything else. leave() is called until it returns true.
  bool leave();

 private:
  template <typename Step>
  void attempt_send(Step&& step);
  void receive();
  void settle();
  void pump_lane(uint32_t index);
  bool put(Frame frame, std::string_view payload, Ticket ticket);
  void notify(FrameKind kind, uint32_t lane, uint32_t number = 0, uint32_t tag = 0);
  void send_over(Ticket ticket);
  void on_frame(std::string_view bytes);
  bool on_answer(const Frame& frame);
  void on_departure();
  void meet(uint32_t lane);
  void receive_over(const Bulk& bulk, tutti_status status, uint64_t bytes, uint32_t mark);
  bool expects_peer();
  void show_life();
  void close();

  const uint64_t eager_bytes_;
  FrameSender frames_out_;
  FrameReceiver frames_in_;
  BulkSender bulk_out_;
  BulkReceiver bulk_in_;
  std::vector<Lane> lanes_;
  struct Notice {
    FrameKind kind;
    uint32_t lane;
    uint32_t number;
    uint32_t tag;
  };
  sdk::Ring<Notice> notices_;  // frames without payload that wait for room
  void* flush_ = nullptr;      // the request of a flush under way
  uint32_t byes_ = 0;          // farewells that were sent
  bool is_missed_ = false;     // something was expected of the peer after its departure
  uint32_t rounds_ = 0;        // of advance()
  bool has_sent_ = false;      // a frame, since the last look
  std::chrono::steady_clock::time_point heard_of_at_ = std::chrono::steady_clock::now();  // by the peer, last
  std::string send_failure_;   // why nothing leaves any more
  std::chrono::steady_clock::time_point send_failed_at_{};
};

}  // namespace tutti::nccl
