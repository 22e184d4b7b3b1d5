// SPDX-License-Identifier: Apache-2.0
//
// Send and receive. They are not schedules, since ranks issue them in their own order. One protocol over any transport:
//
//   sender                                    receiver
//   RTS {tag, size, sequence, data?}      ->  matches (peer, tag) in order of arrival; small data is part of it
//                                         <-  CTS {sequence}: send it now, on the bulk lane (in the order of the CTS)
//   bytes on the bulk lane                ->
//                                         <-  REJECT {sequence, size}: the matching receive has another size
//                                         <-  CREDIT {n}: n RTS messages have been matched
//
// A transfer of device memory sends only its RTS here, and matches in the order of the calls. Its bytes go
// by streams (stream/stream_transfer.hpp). A mismatch ends the communicator, since the bytes may be on their way.
//
// Control messages carry everything but the bulk bytes. A sender has at most `rts_credit` unmatched RTS messages with a
// peer, which bounds the memory of a receiver.
//
// All memory that a transfer needs is taken when it starts, and used again: matching and moving need none.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "engine/fabric/link.hpp"
#include "engine/p2p/queue.hpp"
#include "engine/p2p/transfer.hpp"
#include "record/call.hpp"

namespace tutti::core {

constexpr uint32_t rts_credit = 64;
constexpr uint32_t credit_batch = 16;

// Begins every control message of the protocol.
struct MessageHeader {
  uint32_t type;
  uint32_t tag;
  uint64_t size;
  uint64_t sequence;
};

// So much rides along with an rts.
inline constexpr uint64_t eager_bytes = TUTTI_CONTROL_BYTES - sizeof(MessageHeader);

// The messages of one rank for another: of how many it has told, and how many of the other's it has answered.
struct TransferCounts {
  uint64_t told = 0, answered = 0;
};
// The ranks that have left, with their last counts for this rank.
using Departed = std::map<uint32_t, TransferCounts>;

class PointToPoint {
 public:
  // Uses `lane` of every link, and the links' control messages. `ended` is called with each transfer that is done, its
  // status, and the error's text.
  using Ended = std::function<void(Transfer&, tutti_status, const std::string&)>;
  PointToPoint(uint32_t rank, std::vector<Link>& links, uint32_t lane, Ended ended)
      : rank_(rank), links_(links), lane_(lane), ended_(std::move(ended)) {}
  // The transfer stays where it is until it is done.
  void start(Transfer& transfer);
  // The earliest message of host memory that has come and that such a receive would meet.
  std::optional<tutti_envelope> probe(const tutti_envelope& wanted) const;
  // Somebody waits for messages that no receive was issued for.
  void watch(bool watched) { watched_ = watched; }
  // The mismatch that must end the communicator; returned once.
  std::optional<CallDifference> take_difference() { return std::exchange(difference_, std::nullopt); }
  // Advances everything and connects links on first use (`connect` returns true if one is ready). True if something
  // moved.
  template <typename Connect>
  bool advance(Connect&& connect) {
    bool moved = false;
    for (auto& [rank, p] : peers_)
      if (p.busy() && connect(links_[rank])) moved |= advance_peer(rank, p);
    return moved;
  }
  // A control message. False if it is not of this protocol or is invalid: `error` says why.
  bool on_control(uint32_t peer, const std::byte* data, uint64_t bytes, std::string* error);
  // Ends every transfer with an error, once nothing is pending on the transports.
  void fail_all(tutti_status status, const std::string& error);
  // True while transfers are incomplete or replies could not be sent yet.
  bool active() const { return active_ || replies_ || watched_; }
  bool replies() const { return replies_; }
  // A transfer whose timeout has passed since it began and since anything last moved between this rank and its peer, or
  // nullptr. Called at intervals.
  const Transfer* overdue(uint64_t now_ns);
  // Calls visit(rank) for each peer of which a receive that no message has met, or a send without its answer, waits
  // since before that time.
  template <typename Visit>
  void visit_awaited(uint64_t before_ns, Visit&& visit) const {
    for (const auto& [rank, p] : peers_)
      if (waits_since(p.receives, before_ns) || waits_since(p.announced, before_ns)) visit(rank);
  }
  // Does a receive from any rank?
  bool awaits_any(uint64_t before_ns) const { return waits_since(anyone_.receives, before_ns); }
  // This rank's, for the peer.
  TransferCounts counts(uint32_t peer) const;
  // A transfer that waits for ranks of which none can answer any more: all that they have sent has come. nullptr: none.
  const Transfer* left_behind(const Departed& departed) const;
  // The oldest transfer of some peer, or nullptr.
  const Transfer* oldest() const;
  // The likely mistake behind a send of host memory that waits: another rank's send waits for this rank to receive.
  // "" where none does.
  std::string hint(const Transfer& transfer) const;
  // A transfer and the event it waits for, in words.
  static std::string standpoint(const Transfer& transfer);

 private:
  struct UnexpectedMessage {
    MessageHeader rts;
    uint64_t order = 0;  // among all that have come
    std::array<std::byte, eager_bytes> payload;
    UnexpectedMessage *next = nullptr, *previous = nullptr;
  };
  struct Peer {
    uint32_t credit = rts_credit;
    uint32_t unmatched = 0;  // of `arrivals`
    uint32_t matched = 0;    // that the peer has not been given credit for again
    uint64_t next_sequence = 0;
    uint64_t answered_here = 0;  // RTS messages of the peer
    TransferCounts heard;        // of the peer: its RTS messages and answers that have come
    Queue<Transfer> waiting;    // sends whose RTS has not been sent
    Queue<Transfer> announced;  // sends without a CTS yet
    Queue<Transfer> receives;   // unmatched
    Queue<Transfer> answered;   // matched receives whose CTS or REJECT has not been sent
    Queue<Transfer> outgoing;   // in the order of the CTS
    Queue<Transfer> incoming;
    Queue<UnexpectedMessage> arrivals;
    bool moved = false;  // since overdue() looked: a message of the peer has come, or one to it has gone
    uint64_t last_move_ns = 0;
    // The one that has come furthest first.
    std::array<const Queue<Transfer>*, 6> queues() const {
      return {&outgoing, &incoming, &answered, &announced, &waiting, &receives};
    }
    // The oldest transfer with the peer, or nullptr.
    const Transfer* oldest() const;
    // One that is, or nullptr.
    const Transfer* overdue(uint64_t now_ns);
    bool owes_credit() const { return matched >= credit_batch; }
    bool busy() const { return oldest() || owes_credit(); }
  };
  static bool waits_since(const Queue<Transfer>& queue, uint64_t before_ns) {
    return !queue.empty() && queue.first()->begun_ns && queue.first()->begun_ns < before_ns;
  }
  Peer& peer(uint32_t rank) { return peers_[rank]; }
  // Where the transfer counts.
  Peer& home(const Transfer& transfer) { return transfer.any_peer ? anyone_ : peer(transfer.peer); }
  // A receive from anyone has met a message of that rank, whose it is now.
  Peer& adopt(Transfer& receive, uint32_t rank);
  bool advance_peer(uint32_t rank, Peer& peer);
  bool announce(Link& link, Peer& peer);
  bool reply(Link& link, Peer& peer);
  // Moves the bytes of a message; true when all have moved. Sets `moved` when some have.
  bool move(Link& link, Transfer& transfer, bool* moved) const;
  // An RTS has met an unmatched receive.
  void match(Peer& peer, Transfer& receive, const MessageHeader& rts, const std::byte* payload);
  std::string differ(const Transfer& receive, const MessageHeader& rts);
  bool on_rts(uint32_t rank, const MessageHeader& rts, const std::byte* payload, uint64_t bytes, std::string* error);
  // A transfer that is in no queue any more is done.
  void finish(Transfer& transfer, tutti_status status, const std::string& error);

  const uint32_t rank_;
  std::vector<Link>& links_;
  const uint32_t lane_;
  const Ended ended_;
  std::optional<CallDifference> difference_;
  uint64_t active_ = 0;
  uint64_t replies_ = 0;  // messages to be sent: answers, and one for each peer that credit is owed to
  bool watched_ = false;
  uint64_t order_ = 0;  // of the last receive or arrival
  std::map<uint32_t, Peer> peers_;
  Peer anyone_;  // receives from any rank
  Pool<UnexpectedMessage> arrivals_;
  Pool<Bulk> bulks_;  // after a failure a transport may still know some
};

}  // namespace tutti::core
