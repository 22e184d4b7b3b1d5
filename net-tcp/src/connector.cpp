// SPDX-License-Identifier: Apache-2.0
#include "connector.hpp"

#include <algorithm>
#include <boost/asio/buffer.hpp>
#include <cstring>
#include <tutti/sdk/endpoint.hpp>

#include "endpoint.hpp"
#include "sockets.hpp"

namespace tutti::tcp {

namespace asio = boost::asio;

namespace {

// While there are other addresses to try, one gets so long to answer at all, and to go on with the handshake.
constexpr std::chrono::milliseconds kCandidateLimit{2000};
constexpr int kRounds = 3;

// Which of this host's addresses are used. In a job without a secret that is, unless the user has chosen, only the one
// by which the ranks have met: whoever reaches a listener could take part.
std::string listening_at(const Settings& settings, uint64_t secret_bytes) {
  if (secret_bytes || !settings.interfaces.empty()) return settings.interfaces;
  const std::string met = sdk::config("meeting_address").value_or("");
  return met.starts_with("127.") ? "127.0.0.0/8" : met;  // loopback has more addresses than it lists
}

}  // namespace

Connector::Connector(Endpoint& endpoint, asio::io_context& io, Poller& poller, const Settings& settings,
                     std::shared_ptr<const Tls> tls, const Shape& shape, uint32_t rank, const uint8_t* secret,
                     uint64_t secret_bytes)
    : endpoint_(endpoint),
      io_(io),
      poller_(poller),
      settings_(settings),
      tls_(std::move(tls)),
      shape_(shape),
      rank_(rank),
      secret_(secret, secret_bytes),
      own_(local_addresses(listening_at(settings, secret_bytes))) {
  self_.host = digest(settings.host_key);
  fill_random(self_.endpoint);
  if (own_.size() > kMaxAddresses) {
    endpoint_.log(TUTTI_LOG_WARN, "this host has " + std::to_string(own_.size()) + " addresses; only the first " +
                                      std::to_string(kMaxAddresses) + " are used: choose with TUTTI_TCP_INTERFACE");
    own_.erase(own_.begin() + kMaxAddresses - 1, own_.end() - 1);  // the last one, loopback if any, stays
  }
  std::string problem;
  for (const LocalAddress& address : own_) {
    std::optional<Acceptor> listener = listen(io_, address, settings_, problem);
    if (!listener) {
      endpoint_.log(TUTTI_LOG_WARN, "cannot listen at " + problem);
      continue;
    }
    poller_.watch(listener->native_handle(), EPOLLIN, Watched::kListener, listeners_.size());
    self_.listeners.push_back({address.ip, listener->local_endpoint().port()});
    listeners_.push_back(std::move(*listener));
  }
  if (listeners_.empty())
    throw sdk::Error(TUTTI_SYSTEM, endpoint_.says("cannot listen on any of this host's addresses: " + problem));
}

std::string Connector::address() const { return self_.encode(); }

// Our own attempts ----------------------------------------------------------------------------------------------------

void Connector::connect(uint32_t peer, const PeerAddress& to) {
  const auto [at, is_new] = meetings_.try_emplace(peer);
  Meeting& meeting = at->second;
  if (meeting.error) {
    const sdk::Error error = *meeting.error;
    meetings_.erase(at);
    throw error;
  }
  if (!is_new) return;
  meeting.deadline = Clock::now() + settings_.connect_timeout;
  Attempt attempt;
  attempt.to = to;
  attempt.candidates = plausible(to, own_, to.host == self_.host);
  attempt.sockets.resize(shape_.sockets);
  if (attempt.candidates.empty()) {
    std::string offered;
    for (const auto& l : to.listeners) offered += (offered.empty() ? "" : ", ") + l.text();
    meetings_.erase(at);
    throw sdk::Error(TUTTI_NOT_SUPPORTED,
                     endpoint_.says("none of rank " + std::to_string(peer) + "'s addresses (" + offered +
                                    ") can be reached from this host's; set TUTTI_TCP_INTERFACE on both"));
  }
  meeting.attempt = std::move(attempt);
  try_next(peer);
}

// Tries the next candidate with socket 0; the other sockets follow on the same way once it is through.
void Connector::try_next(uint32_t peer) {
  Attempt& attempt = *meetings_.at(peer).attempt;
  if (attempt.next == attempt.candidates.size() && attempt.was_cut && ++attempt.rounds < kRounds) attempt.next = 0;
  if (attempt.next == attempt.candidates.size())
    return fail(peer, TUTTI_PEER_FAILED,
                "connect to rank " + std::to_string(peer) + " failed; tried" + attempt.tried +
                    "; is it alive, and are its ports open?");
  fill_random(attempt.id);
  const auto where = attempt.candidates[attempt.next++];
  open_socket(peer, 0, where);
}

void Connector::open_socket(uint32_t peer, uint32_t index, const PeerAddress::Listener& where) {
  Meeting& meeting = meetings_.at(peer);
  const Attempt& attempt = *meeting.attempt;
  auto owner = std::make_unique<Handshake>(Handshake{.id = ++next_id_,
                                                     .stream = Stream(Socket(io_)),
                                                     .outgoing = true,
                                                     .phase = Phase::kConnecting,
                                                     .deadline = meeting.deadline,
                                                     .peer = peer,
                                                     .where = where.text()});
  Handshake& h = *owner;
  if (index == 0 && attempt.next < attempt.candidates.size())
    h.deadline = std::min(h.deadline, Clock::now() + kCandidateLimit);
  h.hello = {kMagic, kVersion, rank_, peer, index, shape_, attempt.id, attempt.to.endpoint, {}};
  fill_random(h.hello.nonce);
  try {
    h.stream = Stream(start_connecting(io_, where, settings_));
  } catch (const sdk::Error& error) {
    return attempt_failed(peer, h, error);
  }
  poller_.watch(h.stream.socket().native_handle(), EPOLLOUT, Watched::kHandshake, h.id);
  handshakes_.emplace(h.id, std::move(owner));
}

void Connector::attempt_failed(uint32_t peer, const Handshake& h, const sdk::Error& error) {
  const auto at = meetings_.find(peer);
  if (at == meetings_.end() || !at->second.attempt || at->second.attempt->id != h.hello.attempt) return;
  Attempt& attempt = *at->second.attempt;
  attempt.tried += (attempt.tried.empty() ? " " : ", ") + h.where + " (" + error.what() + ")";
  const bool final_answer = error.status() == TUTTI_MISMATCH || h.hello.socket != 0;
  if (final_answer || Clock::now() >= at->second.deadline)
    return fail(peer, error.status(),
                "connect to rank " + std::to_string(peer) + " at " + h.where + ": " + error.what());
  try_next(peer);
}

void Connector::fail(uint32_t peer, tutti_status status, const std::string& text) {
  Meeting& meeting = meetings_.at(peer);
  abandon_attempt(peer);
  meeting.visit.reset();
  meeting.error = sdk::Error(status, endpoint_.says(text));
}

void Connector::abandon_attempt(uint32_t peer) {
  meetings_.at(peer).attempt.reset();
  std::erase_if(handshakes_, [&](const auto& item) { return item.second->outgoing && item.second->peer == peer; });
}

// Both ends of the handshake ------------------------------------------------------------------------------------------

void Connector::on_listener(uint64_t index) {
  if (index >= listeners_.size()) return;
  for (int i = 0; i < 16; ++i) {
    boost::system::error_code error;
    std::string from;
    Socket socket = accept(listeners_[index], settings_, from, error);
    if (error == asio::error::would_block) return;
    if (error) {
      if (!accept_failed_ && error != asio::error::connection_aborted)
        endpoint_.log(TUTTI_LOG_ERROR, "cannot accept connections: " + error.message());
      accept_failed_ = true;
      return;
    }
    const size_t most = std::max<size_t>(256, size_t{2} * shape_.nranks * shape_.sockets);
    if (incoming_ >= most)  // the oldest stranger makes room
      drop(std::find_if(handshakes_.begin(), handshakes_.end(), [](const auto& h) {
             return !h.second->outgoing;
           })->first);
    auto owner = std::make_unique<Handshake>(Handshake{.id = ++next_id_,
                                                       .stream = Stream(std::move(socket)),
                                                       .outgoing = false,
                                                       .phase = Phase::kTls,
                                                       .deadline = Clock::now() + kHandshakeLimit,
                                                       .peer = 0,
                                                       .where = from});
    const uint64_t id = owner->id;
    if (tls_) owner->stream.start_tls(*tls_, true);
    poller_.watch(owner->stream.socket().native_handle(), EPOLLIN, Watched::kHandshake, id);
    handshakes_.emplace(id, std::move(owner));
    ++incoming_;
    advance(id);
  }
}

void Connector::drop(uint64_t id) {
  const auto at = handshakes_.find(id);
  if (at == handshakes_.end()) return;
  if (!at->second->outgoing) --incoming_;
  handshakes_.erase(at);
}

void Connector::on_handshake(uint64_t id) { advance(id); }

// Goes on with one handshake as far as it gets. A failure ends that handshake only.
void Connector::advance(uint64_t id) {
  for (;;) {
    const auto at = handshakes_.find(id);
    if (at == handshakes_.end()) return;
    try {
      if (!step(*at->second)) return;
    } catch (const sdk::Error& error) {
      if (handshakes_.find(id) == handshakes_.end()) throw;
      std::unique_ptr<Handshake> owner = std::move(at->second);
      handshakes_.erase(at);
      if (owner->outgoing) return attempt_failed(owner->peer, *owner, error);
      --incoming_;
      // Whoever hung up by itself (a crossing connection does) is no cause for alarm.
      const uint32_t level = error.status() == TUTTI_PEER_FAILED ? TUTTI_LOG_DEBUG : TUTTI_LOG_WARN;
      turned_away(level, owner->where + ": " + error.what());
      return;
    }
  }
}

// Strangers may knock as often as they like; the log hears of them now and then.
void Connector::turned_away(uint32_t level, const std::string& whom) {
  constexpr auto kQuiet = std::chrono::seconds(10);
  const auto now = Clock::now();
  if (level == TUTTI_LOG_WARN && now < next_warning_) {
    ++unmentioned_;
    return;
  }
  std::string text = "turned away a connection from " + whom;
  if (level == TUTTI_LOG_WARN) {
    if (unmentioned_) text += " (and " + std::to_string(unmentioned_) + " others before)";
    unmentioned_ = 0;
    next_warning_ = now + kQuiet;
  }
  endpoint_.log(level, text);
}

template <typename T>
bool Connector::receive(Handshake& h, T& message) {
  static_assert(sizeof(T) <= sizeof(Hello));
  boost::system::error_code error;
  const size_t n = h.stream.read_some(asio::buffer(h.buffer.data() + h.got, sizeof(T) - h.got), {}, error);
  if (error == asio::error::would_block) return false;
  if (is_refusal(error))
    throw sdk::Error(TUTTI_MISMATCH, "it refuses this rank's certificate (TUTTI_TLS_CERTIFICATE): " + error.message());
  if (error) {
    if (h.outgoing)
      if (const auto at = meetings_.find(h.peer); at != meetings_.end() && at->second.attempt)
        at->second.attempt->was_cut = true;
    throw sdk::Error(TUTTI_PEER_FAILED, "it hung up during the handshake: " + error.message());
  }
  h.got += n;
  if (h.got < sizeof(T)) return false;
  std::memcpy(&message, h.buffer.data(), sizeof(T));
  h.got = 0;
  return true;
}

// A socket's buffer always has room for these few bytes.
template <typename T>
void Connector::send(Handshake& h, const T& message) {
  boost::system::error_code error;
  if (h.stream.write_some(asio::buffer(&message, sizeof message), {}, error) != sizeof message)
    throw sdk::Error(TUTTI_PEER_FAILED, "cannot write a handshake message: " + error.message());
}

// One message of the handshake; true when the next may be tried at once.
bool Connector::step(Handshake& h) {
  switch (h.phase) {
    case Phase::kConnecting:
      if (!has_connected(h.stream.socket())) return false;
      if (tls_) h.stream.start_tls(*tls_, false);
      poller_.change(h.stream.socket().native_handle(), EPOLLIN, Watched::kHandshake, h.id);
      h.phase = Phase::kTls;
      return true;
    case Phase::kTls:
      if (!h.stream.shake_hands()) return false;
      if (h.outgoing) send(h, h.hello);
      h.phase = h.outgoing ? Phase::kChallenge : Phase::kHello;
      return true;
    case Phase::kHello:
      if (!receive(h, h.hello)) return false;
      if (h.hello.magic != kMagic || h.hello.version != kVersion)
        throw sdk::Error(TUTTI_MISMATCH, "its first bytes are not version " + std::to_string(kVersion) +
                                             " of the tcp transport's handshake");
      h.challenge = {kMagic, kVersion, rank_, shape_, self_.endpoint, {}};
      fill_random(h.challenge.nonce);
      send(h, h.challenge);
      h.phase = Phase::kProof;
      return true;
    case Phase::kChallenge:
      if (!receive(h, h.challenge)) return false;
      if (h.challenge.magic != kMagic || h.challenge.rank != h.peer || h.challenge.endpoint != h.hello.target)
        throw sdk::Error(TUTTI_PEER_FAILED, "something else than rank " + std::to_string(h.peer) + " listens there");
      if (h.challenge.version != kVersion)
        throw sdk::Error(TUTTI_MISMATCH, "it speaks version " + std::to_string(h.challenge.version) +
                                             " of the tcp transport, this rank " + std::to_string(kVersion));
      send(h, Proof{secret_.connector_mac(h.hello, h.challenge)});
      h.phase = Phase::kVerdict;
      return true;
    case Phase::kProof: {
      Proof proof;
      if (receive(h, proof)) on_proof(h, proof);
      return false;
    }
    case Phase::kVerdict: {
      Verdict verdict;
      if (receive(h, verdict)) on_verdict(h, verdict);
      return false;
    }
  }
  return false;
}

std::string Connector::differences(const Shape& theirs, uint32_t rank) const {
  return sdk::differences(rank_, rank,
                          {{"the number of ranks", shape_.nranks, theirs.nranks},
                           {"the number of lanes", shape_.lanes, theirs.lanes},
                           {"TUTTI_TCP_SOCKETS", shape_.sockets, theirs.sockets},
                           {"the eager window", shape_.eager_window, theirs.eager_window},
                           {"TUTTI_TCP_FRAGMENT_BYTES", shape_.fragment_bytes, theirs.fragment_bytes},
                           {"TUTTI_TCP_EAGER_BYTES", shape_.eager_bytes, theirs.eager_bytes},
                           {"the communicator's id", shape_.communicator, theirs.communicator}});
}

// The acceptor's end: is the connector one of us, and do we want this socket?
void Connector::on_proof(Handshake& h, const Proof& proof) {
  if (!same_mac(proof.mac, secret_.connector_mac(h.hello, h.challenge))) {
    send(h, Verdict{static_cast<uint32_t>(Answer::kWrongSecret), 0, {}});
    throw sdk::Error(TUTTI_MISMATCH, "it says it is rank " + std::to_string(h.hello.from) +
                                         " but cannot prove that it knows the job's secret");
  }
  const Answer answer = decide(h);
  const auto code = static_cast<uint32_t>(answer);
  send(h, Verdict{code, 0, secret_.acceptor_mac(h.hello, h.challenge, code)});
  if (answer == Answer::kAccepted) return visitor_ready(h);
  const std::string who = "rank " + std::to_string(h.hello.from);
  if (answer == Answer::kMismatch) {
    const std::string text = differences(h.hello.shape, h.hello.from);
    if (h.hello.from < shape_.nranks && h.hello.from != rank_ && !endpoint_.has_link(h.hello.from)) {
      meetings_.try_emplace(h.hello.from);
      fail(h.hello.from, TUTTI_MISMATCH, "connection with " + who + ": " + text);
    }
    throw sdk::Error(TUTTI_MISMATCH, text);
  }
  if (answer == Answer::kWrongTarget) throw sdk::Error(TUTTI_MISMATCH, who + " looks for another endpoint");
  drop(h.id);
}

Answer Connector::decide(const Handshake& h) {
  const Hello& hello = h.hello;
  if (hello.to != rank_ || hello.target != self_.endpoint) return Answer::kWrongTarget;
  if (hello.shape != shape_) return Answer::kMismatch;
  if (hello.from >= shape_.nranks || hello.from == rank_ || hello.socket >= shape_.sockets) return Answer::kWrongTarget;
  if (endpoint_.is_given_up(hello.from)) return Answer::kGivenUp;
  if (endpoint_.has_link(hello.from)) return Answer::kConnected;
  const auto at = meetings_.find(hello.from);
  if (at != meetings_.end() && at->second.attempt && rank_ < hello.from) return Answer::kCrossed;
  return Answer::kAccepted;
}

Stream Connector::take_socket(Handshake& h) {
  poller_.forget(h.stream.socket().native_handle());
  Stream stream = std::move(h.stream);
  drop(h.id);
  return stream;
}

namespace {
bool complete(const std::vector<std::optional<Stream>>& sockets) {
  return std::all_of(sockets.begin(), sockets.end(), [](const auto& s) { return s.has_value(); });
}
std::vector<Stream> release(std::vector<std::optional<Stream>>& sockets) {
  std::vector<Stream> result;
  for (auto& s : sockets) result.push_back(std::move(*s));
  return result;
}
}  // namespace

void Connector::visitor_ready(Handshake& h) {
  const uint32_t peer = h.hello.from, index = h.hello.socket;
  const Id id = h.hello.attempt;
  Meeting& meeting = meetings_[peer];
  meeting.error.reset();
  if (meeting.attempt) abandon_attempt(peer);
  if (!meeting.visit || meeting.visit->id != id) {
    meeting.visit = Visit{.id = id, .sockets = {}};
    meeting.visit->sockets.resize(shape_.sockets);
    meeting.deadline = Clock::now() + settings_.connect_timeout;
  }
  meeting.visit->sockets[index] = take_socket(h);
  if (!complete(meeting.visit->sockets)) return;
  std::vector<Stream> sockets = release(meeting.visit->sockets);
  meetings_.erase(peer);
  endpoint_.establish(peer, std::move(sockets));
}

// The connector's end: what did the acceptor say, and is it one of us?
void Connector::on_verdict(Handshake& h, const Verdict& verdict) {
  const std::string who = "rank " + std::to_string(h.peer);
  if (verdict.answer == static_cast<uint32_t>(Answer::kWrongSecret))
    throw sdk::Error(TUTTI_MISMATCH,
                     who + " refused this rank's proof of the job's secret: the two have different secrets");
  if (!same_mac(verdict.mac, secret_.acceptor_mac(h.hello, h.challenge, verdict.answer)))
    throw sdk::Error(TUTTI_MISMATCH, "it says it is " + who + " but cannot prove that it knows the job's secret");
  switch (static_cast<Answer>(verdict.answer)) {
    case Answer::kAccepted:
      return socket_ready(h);
    case Answer::kMismatch:
      throw sdk::Error(TUTTI_MISMATCH, differences(h.challenge.shape, h.peer));
    case Answer::kCrossed:
    case Answer::kConnected:  // its own connection to us counts; the deadline stays
      return abandon_attempt(h.peer);
    case Answer::kGivenUp: {
      Attempt& attempt = *meetings_.at(h.peer).attempt;  // no other address would answer differently
      attempt.next = attempt.candidates.size();
      throw sdk::Error(TUTTI_PEER_FAILED, who + " has given this rank up");
    }
    default:
      throw sdk::Error(TUTTI_PEER_FAILED, who + " answers that another endpoint was meant: the address is out of date");
  }
}

void Connector::socket_ready(Handshake& h) {
  const uint32_t peer = h.peer, index = h.hello.socket;
  Attempt& attempt = *meetings_.at(peer).attempt;
  attempt.sockets[index] = take_socket(h);
  if (index == 0) {
    const auto where = attempt.candidates[attempt.next - 1];
    for (uint32_t i = 1; i < shape_.sockets; ++i)
      if (const auto at = meetings_.find(peer); at != meetings_.end() && at->second.attempt)
        open_socket(peer, i, where);
  }
  const auto at = meetings_.find(peer);
  if (at == meetings_.end() || !at->second.attempt || !complete(at->second.attempt->sockets)) return;
  std::vector<Stream> sockets = release(at->second.attempt->sockets);
  meetings_.erase(at);
  endpoint_.establish(peer, std::move(sockets));
}

// Time and the end ----------------------------------------------------------------------------------------------------

void Connector::check_deadlines(Clock::time_point now) {
  std::vector<uint64_t> late;
  for (const auto& [id, h] : handshakes_)
    if (h->deadline <= now) late.push_back(id);
  for (const uint64_t id : late) {
    const auto at = handshakes_.find(id);
    if (at == handshakes_.end()) continue;
    const std::unique_ptr<Handshake> h = std::move(at->second);
    handshakes_.erase(at);
    if (h->outgoing) {
      attempt_failed(
          h->peer, *h,
          sdk::Error(TUTTI_TIMEOUT, h->phase == Phase::kConnecting ? "no answer in time" : "no handshake in time"));
    } else {
      --incoming_;
      turned_away(TUTTI_LOG_WARN,
                  h->where + ": no handshake within " + std::to_string(kHandshakeLimit.count() / 1000) + " s");
    }
  }
  for (auto at = meetings_.begin(); at != meetings_.end();) {
    const uint32_t peer = at->first;
    Meeting& meeting = at++->second;
    if (meeting.error || meeting.deadline > now) continue;
    fail(peer, TUTTI_TIMEOUT,
         "connect to rank " + std::to_string(peer) + " took longer than " +
             std::to_string(settings_.connect_timeout.count()) +
             " s (TUTTI_TCP_CONNECT_TIMEOUT); does it still make progress?");
  }
}

std::optional<Clock::time_point> Connector::next_deadline() const {
  std::optional<Clock::time_point> first;
  const auto consider = [&](Clock::time_point t) {
    if (!first || t < *first) first = t;
  };
  for (const auto& [id, h] : handshakes_) consider(h->deadline);
  for (const auto& [peer, meeting] : meetings_)
    if (!meeting.error) consider(meeting.deadline);
  return first;
}

void Connector::forget(uint32_t peer) {
  if (!meetings_.contains(peer)) return;
  abandon_attempt(peer);
  meetings_.erase(peer);
}

void Connector::stop() {
  handshakes_.clear();
  meetings_.clear();
  listeners_.clear();
  incoming_ = 0;
}

}  // namespace tutti::tcp
