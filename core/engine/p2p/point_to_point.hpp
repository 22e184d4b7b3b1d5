// SPDX-License-Identifier: Apache-2.0
//
// Send and receive. They are not schedules, since ranks issue them in their own order. One protocol over any transport:
//
//   sender                                    receiver
//   RTS {tag, size, sequence, data?}      ->  matches (peer, tag) in order of sequence; short data is part of it
//                                         <-  CTS {sequence}: send it now, on the bulk lane (in the order of the CTS)
//   bytes on the bulk lane                ->
//                                         <-  REJECT {sequence, size}: the matching receive has another size
//                                         <-  CREDIT {n}: n RTS messages have been matched
//
// All but the bytes are control messages. Where both ends can view messages, an RTS is one message of a lane of its own
// instead, which costs a fraction of a control message and has room for more data. The first CREDIT says that the
// receiver reads that lane. A full lane is passed by with a control message: then the sequence tells the receiver that
// the lane has earlier ones.
//
// Over links without views a message of up to 16 KiB is posted in that lane, and a control message announces it. An RTS
// counts as come when its bytes have landed in memory of the receiver's; those behind it wait.
//
// A transfer of device memory sends only its RTS here, and matches in the order of the calls. Its bytes go
// by streams (stream/stream_transfer.hpp). A mismatch ends the communicator, since the bytes may be on their way.
//
// A sender has at most `rts_credit` unmatched RTS messages with a peer, which bounds the memory of a receiver.
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

#include "base/failure.hpp"
#include "engine/fabric/link.hpp"
#include "engine/p2p/queue.hpp"
#include "engine/p2p/transfer.hpp"
#include "record/call.hpp"

namespace tutti::core {

constexpr uint32_t rts_credit = 64;
constexpr uint32_t credit_batch = 16;

enum : uint32_t { type_rts = 0x54545031, type_cts, type_reject, type_credit, type_stream_rts, type_rts_posted };

// Begins every message of the protocol but the bytes.
struct MessageHeader {
  uint32_t type;
  uint32_t tag;
  uint64_t size;
  uint64_t sequence;
  bool by_stream() const { return type == type_stream_rts; }
};

// So much rides along with an RTS: as a control message, and at most in a lane.
inline constexpr uint64_t eager_bytes = TUTTI_CONTROL_BYTES - sizeof(MessageHeader);
inline constexpr uint64_t most_eager_bytes = 16384;
static_assert(eager_bytes < most_eager_bytes);
// Where the data of an RTS in a lane begins. Data of more than a few bytes is aligned: memcpy copies it several times
// as fast.
constexpr uint64_t data_begins(uint64_t bytes) { return bytes <= sizeof(MessageHeader) ? sizeof(MessageHeader) : 64; }

// The messages of one rank for another: of how many it has told, and how many of the other's it has answered.
struct TransferCounts {
  uint64_t told = 0, answered = 0;
};
// The ranks that have left, with their last counts for this rank.
using Departed = std::map<uint32_t, TransferCounts>;

class PointToPoint {
 public:
  static constexpr uint32_t lanes = 2;
  // Uses so many lanes of every link, `lane` and the next one, and the links' control messages. `ended` is called with
  // each transfer that is done, its status, and the error's text.
  using Ended = std::function<void(Transfer&, tutti_status, const std::string&)>;
  PointToPoint(uint32_t rank, std::vector<Link>& links, uint32_t lane, Ended ended)
      : rank_(rank), links_(links), lane_(lane), rts_lane_(lane + 1), ended_(std::move(ended)) {}
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
      if ((p.busy() || listens_to(p)) && connect(links_[rank])) moved |= advance_peer(rank, p);
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
  struct LongPayload {
    std::array<std::byte, most_eager_bytes> bytes;
    LongPayload* next = nullptr;
  };
  struct UnexpectedMessage {
    MessageHeader rts;
    uint64_t order = 0;  // among all that have come
    bool eager = false;  // its bytes are here: in `payload`, or where they are more in `rest`
    LongPayload* rest = nullptr;
    std::array<std::byte, eager_bytes> payload;
    UnexpectedMessage *next = nullptr, *previous = nullptr;
  };
  // An RTS whose bytes come in the lane, or that is behind such a one.
  struct Landing {
    MessageHeader rts;
    Inflow in;
    std::array<std::byte, most_eager_bytes> bytes;
    Landing *next = nullptr, *previous = nullptr;
  };
  struct Peer {
    uint32_t credit = rts_credit;
    uint32_t unmatched = 0;  // of `arrivals`
    uint32_t matched = 0;    // that the peer has not been given credit for again
    uint32_t batch = 1;       // for so many the peer is given credit; where links have views, the first one at once
    bool greeted = false;     // the peer has been given credit: it may use the lane for RTS messages
    bool reads_lane = false;  // so may this rank
    uint64_t next_sequence = 0;
    uint64_t answered_here = 0;  // RTS messages of the peer
    TransferCounts heard;        // of the peer: its RTS messages and answers that have come
    Queue<Transfer> waiting;    // sends whose RTS has not been sent
    Queue<Transfer> posted;     // sends whose bytes were posted before their RTS
    Queue<Transfer> announced;  // sends without a CTS yet
    Queue<Transfer> receives;   // unmatched
    Queue<Transfer> answered;   // matched receives whose CTS or REJECT has not been sent
    Queue<Transfer> outgoing;   // in the order of the CTS
    Queue<Transfer> incoming;
    Queue<UnexpectedMessage> arrivals;
    Queue<Landing> landings;
    uint32_t landing = 0;  // how many
    bool moved = false;  // since overdue() looked: a message of the peer has come, or one to it has gone
    uint64_t last_move_ns = 0;
    // The one that has come furthest first.
    std::array<const Queue<Transfer>*, 7> queues() const {
      return {&posted, &outgoing, &incoming, &answered, &announced, &waiting, &receives};
    }
    // The oldest transfer with the peer, or nullptr.
    const Transfer* oldest() const;
    // One that is, or nullptr.
    const Transfer* overdue(uint64_t now_ns);
    bool owes_credit() const { return matched >= batch; }
    bool busy() const { return oldest() || owes_credit() || landing; }
  };
  static bool waits_since(const Queue<Transfer>& queue, uint64_t before_ns) {
    return !queue.empty() && queue.first()->begun_ns && queue.first()->begun_ns < before_ns;
  }
  Peer& peer(uint32_t rank) {
    const auto [at, made] = peers_.try_emplace(rank);
    if (made && !links_[rank].view) at->second.batch = credit_batch;
    return at->second;
  }
  // Where the transfer counts.
  Peer& home(const Transfer& transfer) { return transfer.any_peer ? anyone_ : peer(transfer.peer); }
  // A receive from anyone has met a message of that rank, whose it is now.
  Peer& adopt(Transfer& receive, uint32_t rank);
  bool advance_peer(uint32_t rank, Peer& peer);
  bool announce(Link& link, Peer& peer);
  void open(Link& link, uint32_t lane, Transfer& transfer) const;
  // Posts a message whose RTS says that it comes in the lane. False: not all of it yet.
  bool post(Link& link, Transfer& transfer) const;
  // Sends an RTS. *along: the bytes of the transfer that are part of it.
  tutti_status send_rts(Link& link, const Peer& peer, const Transfer& transfer, uint64_t* along) const;
  // Is an RTS of the peer awaited that may come in the lane? A lane in which nothing is awaited is not looked at: of a
  // rank that has left that would be an error.
  bool listens_to(const Peer& p) const {
    return p.greeted && (!p.receives.empty() || !anyone_.receives.empty() || watched_);
  }
  // Takes the next RTS out of the peer's lane. False: there is none, or an earlier one comes as a control message.
  bool take_from_lane(uint32_t rank, Peer& p, std::string* error);
  bool listen(uint32_t rank, Peer& p);
  // Keeps an RTS until its bytes, or those of one before it, have landed.
  bool keep(uint32_t rank, const MessageHeader& rts, const std::byte* payload, uint64_t bytes, std::string* error);
  bool land(uint32_t rank, Peer& p);
  bool reply(Link& link, Peer& peer);
  // Moves the bytes of a message; true when all have moved. Sets `moved` when some have.
  bool move(Link& link, Transfer& transfer, bool* moved) const;
  // True if this send matches this receive. Transfers by streams match in the order of the calls.
  static bool meet(const MessageHeader& rts, const Transfer& receive);
  // An RTS has met an unmatched receive. `payload`: its bytes; nullptr: they come later.
  void match(Peer& peer, Transfer& receive, const MessageHeader& rts, const std::byte* payload);
  std::string differ(const Transfer& receive, const MessageHeader& rts);
  bool on_rts(uint32_t rank, const MessageHeader& rts, const std::byte* payload, uint64_t bytes, std::string* error);
  // A link that fails ends the communicator.
  static Failure broken_way(const char* what, const Link& link, tutti_status status);
  // A transfer that is in no queue any more is done.
  void finish(Transfer& transfer, tutti_status status, const std::string& error);

  const uint32_t rank_;
  std::vector<Link>& links_;
  const uint32_t lane_, rts_lane_;
  const Ended ended_;
  std::optional<CallDifference> difference_;
  uint64_t active_ = 0;
  // Messages to be sent, which are answers, and one for each peer that credit is owed to; and those that land.
  uint64_t replies_ = 0;
  bool watched_ = false;
  uint64_t order_ = 0;  // of the last receive or arrival
  std::map<uint32_t, Peer> peers_;
  Peer anyone_;  // receives from any rank
  Pool<UnexpectedMessage> arrivals_;
  Pool<LongPayload> payloads_;
  Pool<Landing> landings_;  // after a failure a transport may still know some, as the next
  Pool<Bulk> bulks_;
};

}  // namespace tutti::core
