// SPDX-License-Identifier: Apache-2.0
//
// Brings sockets about: listens, connects, and lets both ends prove that they belong to the same job and agree on the
// shape before a link is made. Strangers cost a descriptor for five seconds and nothing else.
//
// A link is made of `sockets` sockets, all opened by one end. When both ends connect at once the lower rank's sockets
// count: the lower rank answers "crossed", the higher one abandons its attempt.
#pragma once

#include <utility>
// Boost 1.74 needs <utility> first.
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tutti/sdk/plugin.hpp>
#include <vector>

#include "address.hpp"
#include "connection.hpp"
#include "poller.hpp"
#include "proof.hpp"
#include "settings.hpp"

namespace tutti::tcp {

class Endpoint;
using Clock = std::chrono::steady_clock;

class Connector {
 public:
  // Listens on the chosen addresses at once. Throws sdk::Error.
  Connector(Endpoint& endpoint, boost::asio::io_context& io, Poller& poller, const Settings& settings,
            std::shared_ptr<const Tls> tls, const Shape& shape, uint32_t rank, const uint8_t* secret,
            uint64_t secret_bytes);

  // What peers need to connect here.
  std::string address() const;
  // Starts, or goes on with, connecting to a peer that has no link; throws sdk::Error once it cannot be.
  void connect(uint32_t peer, const PeerAddress& to);
  // Is anything under way that needs looking after?
  bool is_busy() const { return !handshakes_.empty() || !meetings_.empty(); }
  void on_listener(uint64_t index);
  void on_handshake(uint64_t id);
  // Ends what has taken too long.
  void check_deadlines(Clock::time_point now);
  std::optional<Clock::time_point> next_deadline() const;
  // Drops everything that concerns a peer / everything, listeners included.
  void forget(uint32_t peer);
  void stop();

 private:
  enum class Phase { kConnecting, kTls, kHello, kChallenge, kProof, kVerdict };

  // One socket on its way to be trusted.
  struct Handshake {
    uint64_t id;
    Stream stream;
    bool outgoing;
    Phase phase;
    Clock::time_point deadline;
    uint32_t peer;      // outgoing: whom we want
    std::string where;  // the other end's address
    Hello hello{};
    Challenge challenge{};
    std::array<char, sizeof(Hello)> buffer{};
    size_t got = 0;
  };
  // Our own try to reach a peer.
  struct Attempt {
    PeerAddress to;
    std::vector<PeerAddress::Listener> candidates;
    size_t next = 0;
    int rounds = 0;
    bool was_cut = false;  // a listener was there but hung up
    Id id{};
    std::vector<std::optional<Stream>> sockets;
    std::string tried;
  };
  // A peer's try to reach us, of which some sockets are here.
  struct Visit {
    Id id{};
    std::vector<std::optional<Stream>> sockets;
  };
  struct Meeting {
    std::optional<Attempt> attempt;
    std::optional<Visit> visit;
    std::optional<sdk::Error> error;  // for the next connect()
    Clock::time_point deadline;
  };

  void try_next(uint32_t peer);
  void open_socket(uint32_t peer, uint32_t index, const PeerAddress::Listener& where);
  void attempt_failed(uint32_t peer, const Handshake& handshake, const sdk::Error& error);
  void fail(uint32_t peer, tutti_status status, const std::string& text);
  void abandon_attempt(uint32_t peer);

  void advance(uint64_t id);
  bool step(Handshake& h);
  void on_verdict(Handshake& h, const Verdict& verdict);
  void on_proof(Handshake& h, const Proof& proof);
  Answer decide(const Handshake& h);
  void socket_ready(Handshake& h);
  void visitor_ready(Handshake& h);
  void drop(uint64_t id);
  Stream take_socket(Handshake& h);
  template <typename T>
  bool receive(Handshake& h, T& message);
  template <typename T>
  void send(Handshake& h, const T& message);
  std::string differences(const Shape& theirs, uint32_t rank) const;

  Endpoint& endpoint_;
  boost::asio::io_context& io_;
  Poller& poller_;
  const Settings& settings_;
  const std::shared_ptr<const Tls> tls_;  // null: bytes travel as they are
  const Shape shape_;
  const uint32_t rank_;
  Secret secret_;
  std::vector<LocalAddress> own_;
  PeerAddress self_;
  std::vector<boost::asio::ip::tcp::acceptor> listeners_;
  std::map<uint64_t, std::unique_ptr<Handshake>> handshakes_;  // by id, oldest first
  std::map<uint32_t, Meeting> meetings_;                       // by peer, until there is a link
  uint64_t next_id_ = 0;
  void turned_away(uint32_t level, const std::string& whom);
  Clock::time_point next_warning_{};
  uint64_t unmentioned_ = 0;  // strangers that no warning has told of
  size_t incoming_ = 0;
  bool accept_failed_ = false;
};

}  // namespace tutti::tcp
