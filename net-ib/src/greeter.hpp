// SPDX-License-Identifier: Apache-2.0
//
// Brings links about: the exchange of greetings (wire.hpp) over datagrams, each repeated until it is answered, over
// each pair of rails in turn. Whoever cannot prove that it knows the job's secret is not answered at all.
//
// When both ends connect at once the lower rank's greeting counts; the higher one gives its own up.
#pragma once

#include <chrono>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tutti/sdk/plugin.hpp>
#include <vector>

#include "path.hpp"
#include "port.hpp"
#include "proof.hpp"

namespace tutti::ib {

class Endpoint;
using Clock = std::chrono::steady_clock;

class Greeter {
 public:
  Greeter(Endpoint& endpoint, uint32_t rank, const uint8_t* secret, uint64_t secret_bytes);

  // What peers need to connect here.
  std::string address() const;
  // Starts, or goes on with, connecting to a peer that has no link; throws sdk::Error once it cannot be.
  void connect(uint32_t peer, std::string_view address);
  void on_greeting(Rail& rail, const Greeting& greeting, uint32_t from_qp);
  bool is_busy() const { return !meetings_.empty(); }
  // Repeats what was not answered, ends what takes too long.
  void tick(Clock::time_point now);
  std::optional<Clock::time_point> next_deadline() const;
  // The link of a peer is ready, or given up.
  void forget(uint32_t peer) { meetings_.erase(peer); }
  void stop() { meetings_.clear(); }

 private:
  // Our own try to reach a peer, or the wait for a link that the peer began.
  struct Meeting {
    PeerAddress to;
    std::vector<Pairing> pairs;
    std::vector<std::unique_ptr<Path>> paths;
    std::vector<AddressHandle> ways;  // by pair
    Greeting hello{};
    uint32_t tries = 0;
    Clock::time_point next_try, deadline;
    std::optional<sdk::Error> error;  // for the next connect()
  };
  // What was answered to a peer, in case it did not hear.
  struct Answer {
    uint64_t attempt = 0;
    Greeting welcome{};
  };

  void begin(uint32_t peer, Meeting& meeting);
  void hello_again(Meeting& meeting, Clock::time_point now);
  void on_hello(Rail& rail, const Greeting& hello, uint32_t from_qp);
  void accept(Rail& rail, const Greeting& hello, uint32_t from_qp);
  void on_answer(const Greeting& answer);
  void on_welcome(uint32_t peer, Meeting& meeting, const Greeting& welcome);
  void reply(Rail& rail, Greeting greeting, const Greeting& hello, uint32_t from_qp);
  Greeting blank(Greet kind, uint32_t to, const Id& receiver, uint64_t attempt) const;
  void fail(uint32_t peer, tutti_status status, const std::string& text);
  void turned_away(const std::string& whom);
  std::string differences(const Shape& theirs, uint32_t rank) const;
  std::string no_pair(uint32_t peer, const PeerAddress& to) const;

  Endpoint& endpoint_;
  const uint32_t rank_;
  const Shape shape_;
  Secret secret_;
  Id id_{};
  std::map<uint32_t, Meeting> meetings_;  // by peer, until there is a link
  std::map<uint32_t, Answer> answers_;    // by peer
  Clock::time_point next_warning_{};
};

}  // namespace tutti::ib
