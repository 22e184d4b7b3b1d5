// SPDX-License-Identifier: Apache-2.0
//
// send and receive: not schedules, since ranks issue them in their own order. One protocol over any transport:
//
//   sender                                    receiver
//   ENVELOPE {tag, size, sequence, data?} ->  matches (peer, tag) in order of arrival; small data rides along
//                                         <-  TICKET {sequence}: send it now, on the bulk lane (tickets are served in
//                                         order)
//   bytes on the bulk lane                ->
//                                         <-  REJECT {sequence, size}: the receive that matched has another size
//                                         <-  CREDIT {n}: n envelopes have been matched
//
// Device memory takes another way (stream_transfer.hpp): of it only an envelope goes by here, so that it is matched
// with what the peer calls, in the order of the calls. What does not match ends the communicator: its bytes may be on
// their way already.
//
// Control messages carry all but the bulk bytes. A sender has at most `envelope_credit` unmatched envelopes with a
// peer, so what a receiver must keep is bounded.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/call.hpp"
#include "engine/link.hpp"

namespace tutti::core {

constexpr uint32_t envelope_credit = 64;
constexpr uint32_t credit_batch = 16;

struct Envelope {
  uint32_t type;
  uint32_t tag;
  uint64_t size;
  uint64_t sequence;
};

// One send or receive. Belongs to its request.
struct Transfer {
  bool sending = false;
  bool on_stream = false;  // of device memory: done when it is matched
  uint32_t peer = 0;
  uint32_t tag = 0;
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint64_t timeout_ns = 0;
  uint64_t sequence = 0;
  uint64_t record = 0;  // its number in the flight recorder
  bool done = false;
  tutti_status status = TUTTI_OK;
  std::string error;
  std::function<void()> finished;
  static Transfer of(bool sending, uint32_t peer, uint32_t tag, void* data, uint64_t bytes) {
    Transfer made;
    made.sending = sending;
    made.peer = peer;
    made.tag = tag;
    made.data = static_cast<std::byte*>(data);
    made.bytes = bytes;
    return made;
  }
};

class PointToPoint {
 public:
  // Uses `lane` of every link, and the links' control messages of at most `control_bytes`, alike on all ranks.
  void place(uint32_t rank, std::vector<Link>* links, uint32_t lane, uint64_t control_bytes);
  void start(Transfer* transfer);
  // What was found not to match and must end the communicator, once.
  std::optional<CallDifference> take_difference() { return std::exchange(difference_, std::nullopt); }
  // Does what can be done, connecting links on first use (`connect` tells whether one is ready); true when something
  // moved.
  template <typename Connect>
  bool advance(Connect&& connect) {
    bool moved = false;
    for (auto& [rank, p] : peers_)
      if (p.busy() && connect((*links_)[rank])) moved |= advance_peer(rank, p);
    return moved;
  }
  // A control message; false when it is none of ours or makes no sense: `error` says what.
  bool on_control(uint32_t peer, const std::byte* data, uint64_t bytes, std::string* error);
  // Ends every transfer with an error, once nothing is pending on the transports.
  void fail_all(tutti_status status, const std::string& error);
  // Transfers that are not complete, or answers that could not go out yet.
  bool active() const { return active_ || replies_; }
  bool replies() const { return replies_; }
  // A transfer with a peer with whom nothing has moved for longer than the transfer's timeout, or nullptr. Called now
  // and then.
  const Transfer* overdue(uint64_t now_ns);
  // The oldest transfer of some peer, or nullptr.
  const Transfer* oldest() const;

 private:
  struct Arrival {
    Envelope envelope;
    std::string payload;
  };
  struct Bulk {
    Transfer* transfer = nullptr;
    Outflow out;
    Inflow in;
    Place place;  // of an outgoing one's bytes, where they are registered
    bool opened = false;
  };
  struct Peer {
    uint32_t credit = envelope_credit;
    uint32_t consumed = 0;
    uint64_t next_sequence = 0;
    std::deque<Transfer*> waiting;               // sends whose envelope has not gone out
    std::map<uint64_t, Transfer*> announced;     // sends without a ticket yet
    std::deque<Transfer*> receives;              // posted, unmatched
    std::deque<Arrival> arrivals;                // unmatched
    std::deque<std::string> replies;             // control messages that did not fit yet
    std::deque<std::unique_ptr<Bulk>> outgoing;  // ticketed, in order
    std::deque<std::unique_ptr<Bulk>> incoming;
    bool moved = false;  // since overdue() looked
    uint64_t last_move_ns = 0;
    // The oldest transfer with the peer, or nullptr.
    const Transfer* oldest() const;
    // The one of shortest timeout, or nullptr.
    const Transfer* most_urgent() const;
    bool busy() const { return oldest() || !replies.empty(); }
  };
  Peer& peer(uint32_t rank) { return peers_[rank]; }
  bool advance_peer(uint32_t rank, Peer& peer);
  bool announce(uint32_t rank, Peer& peer);
  bool flush(uint32_t rank, Peer& peer);
  bool move(uint32_t rank, Peer& peer);
  void match(uint32_t rank, Peer& peer, Transfer* receive, const Arrival& arrival);
  void reply(Peer& peer, uint32_t type, uint64_t sequence, uint64_t size);
  void finish(Transfer* transfer, tutti_status status, const std::string& error);

  void differ(Transfer* receive, const Envelope& envelope);

  std::vector<Link>* links_ = nullptr;
  uint32_t rank_ = 0;
  std::optional<CallDifference> difference_;
  uint32_t lane_ = 0;
  uint64_t eager_bytes_ = 0;  // so much rides along with an envelope
  uint64_t active_ = 0;
  uint64_t replies_ = 0;
  std::map<uint32_t, Peer> peers_;
  std::vector<std::unique_ptr<Bulk>> failed_;  // a transport may still know them
};

}  // namespace tutti::core
