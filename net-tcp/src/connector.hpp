// SPDX-License-Identifier: Apache-2.0
//
// Connects the sockets of links. Two endpoints exchange offers (sdk::CardExchange). Then the end of higher rank dials:
// it connects to the other end's listeners. It opens every socket with a token from the other end's offer, and the
// other end replies with a second token. If no listener can be reached, the other end is asked to dial. If it cannot
// either, the first end says so to both. The end that is dialled has its link once it has replied on every socket, and
// the end that dials once it has all replies. From then on neither can fail to make its own.
//
// A stranger costs one descriptor for at most five seconds. Only 32 of its bytes are looked at: they are compared with
// the expected opening.
//
// A peer takes part only while it is inside Tutti, so a time limit applies only to its kernel: accepting a connection.
// If the other end drops a socket because the token came too late, the socket is opened again.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <tutti/sdk/card_exchange.hpp>
#include <tutti/sdk/sleeper.hpp>
#include <vector>

#include "stream.hpp"
#include "wire.hpp"

namespace tutti::tcp {

class Endpoint;
using Clock = std::chrono::steady_clock;

// The kind of a descriptor in the endpoint's sleeper: the upper byte of its mark.
enum class Watched : uint64_t { kListener = 1, kOpening = 2, kConnection = 3 };
constexpr uint64_t mark(Watched kind, uint64_t id) { return static_cast<uint64_t>(kind) << 56 | id; }

class Connector {
 public:
  // Listens on the chosen addresses at once. Throws sdk::Error.
  Connector(Endpoint& endpoint, const tutti_endpoint_config& config, std::shared_ptr<const sdk::Tls> tls);

  // Starts or continues connecting to a peer that has no link. Throws sdk::Error once connecting has failed.
  void connect(uint32_t peer) { exchange_.connect(peer); }
  // Handles a pair message from a peer. Throws sdk::Error when the message is invalid.
  void receive(uint32_t peer, std::string_view message);
  // Stops connecting to a peer and sends it a refusal.
  void give_up(uint32_t peer) { exchange_.give_up(peer); }

  // Is there anything that progress() or advance() has to continue?
  bool is_busy() const { return !pending_.empty() || !handshakes_.empty() || has_mail(); }
  bool has_mail() const { return exchange_.has_mail(); }
  void on_listener(uint64_t index);
  // Continues one socket as far as possible. A failure ends that socket only.
  void advance(uint64_t id);
  // Sends pair messages that wait for room, and ends sockets whose deadline has passed.
  void progress();
  std::optional<Clock::time_point> next_deadline() const;
  // Drops everything, listeners included.
  void stop();

 private:
  enum class Phase { kConnecting, kSpeaking, kListening };

  // A socket that does not belong to a link yet. An incoming one is a stranger's.
  struct Pending {
    Stream stream;
    bool outgoing = false;
    Phase phase = Phase::kListening;
    Clock::time_point begun = Clock::now();
    Where where{};       // the other end
    uint32_t peer = 0;   // this and the following: outgoing only
    uint32_t index = 0;  // among the link's sockets
    int hang_ups = 0;    // how often the other end closed this socket before its limit for tokens had passed
    std::array<char, sizeof(Opening)> buffer{};
    size_t got = 0;
  };
  // Two ranks that are connecting.
  struct Handshake {
    Offer mine;
    std::optional<Offer> theirs;
    bool dials;              // this end dials now
    bool swapped = false;    // one end has tried without success
    bool exhausted = false;  // both have: the other end will say so
    std::vector<Where> candidates;
    size_t next = 0;
    std::optional<Clock::time_point> next_at;  // when the next candidate is tried in parallel
    std::vector<std::optional<Stream>> sockets;
    tutti_status status = TUTTI_SYSTEM;  // of the failed attempts to dial
    std::string tried;
  };

  Offer make_offer(uint32_t peer);
  void on_offer(uint32_t peer, const Offer& offer);
  void on_dial(uint32_t peer, tutti_status status, const std::string& text);
  void refuse_dialers(const std::string& reason);

  void dial(uint32_t peer);
  void try_next(uint32_t peer);
  void open_socket(uint32_t peer, uint32_t index, const Where& where, int hang_ups = 0);
  void dial_failed(const Pending& p, const sdk::Error& error);
  void fail(uint64_t id, const sdk::Error& error);
  bool begin_again(const Pending& p);
  void cannot_dial(uint32_t peer);
  void drop(uint32_t peer);
  void drop_outgoing(uint32_t peer);

  uint64_t watch(const Pending& made, uint32_t events);  // its id; throws sdk::Error
  void admit(uint64_t id, Pending made);
  void make_room();
  bool step(uint64_t id, Pending& p);
  bool moved(Pending& p, long n);
  bool send(Pending& p, const Opening& opening);
  void on_knock(uint64_t id, Pending& p, const Opening& opening);
  void on_answer(uint64_t id, Pending& p, const Opening& opening);
  void keep(uint32_t peer, uint32_t index, uint64_t id);
  void log_rejected(uint32_t level, const std::string& whom);
  // The time for the peer's kernel to accept a connection. 0: no limit.
  std::chrono::nanoseconds share() const { return settings_.timeout / 4; }
  // The end of the present phase, if it has one.
  std::optional<Clock::time_point> deadline(const Pending& p) const {
    if (!p.outgoing) return p.begun + kStrangerLimit;
    return p.phase == Phase::kConnecting && share().count() ? std::optional(p.begun + share()) : std::nullopt;
  }

  Endpoint& endpoint_;
  sdk::CardExchange<Offer> exchange_;
  sdk::Sleeper& sleeper_;
  const Settings& settings_;
  const std::shared_ptr<const sdk::Tls> tls_;  // null: no TLS
  const uint32_t rank_;
  std::vector<LocalAddress> own_;
  Offer offer_{};  // without the tokens
  std::vector<Socket> listeners_;
  std::map<uint64_t, Pending> pending_;       // by id, oldest first
  std::map<uint32_t, Handshake> handshakes_;  // by peer, until there is a link
  uint64_t next_id_ = 0;
  Clock::time_point next_warning_{};
  uint64_t unmentioned_ = 0;  // strangers turned away since the last warning
  bool accept_failed_ = false;
};

}  // namespace tutti::tcp
