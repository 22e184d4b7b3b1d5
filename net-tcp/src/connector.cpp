// SPDX-License-Identifier: Apache-2.0
#include "connector.hpp"

#include <openssl/evp.h>

#include <algorithm>
#include <cerrno>
#include <tutti/sdk/token.hpp>

#include "endpoint.hpp"

namespace tutti::tcp {

namespace {

// How long an address is tried before the next one is tried in parallel.
constexpr std::chrono::nanoseconds kCandidateLimit = std::chrono::seconds(2);
// How often the other end may close a socket at once before its address counts as wrong.
constexpr int kMostHangUps = 3;

// In a job without a secret an endpoint listens at the address by which the ranks have met, unless the user has chosen.
// Loopback has more addresses than its interface lists.
std::vector<LocalAddress> listening_at(const Settings& settings, const char* met) {
  if (!settings.interfaces.empty() || !met) return local_addresses(settings.interfaces);
  return local_addresses(std::string_view(met).starts_with("127.") ? "127.0.0.0/8" : met,
                         "tutti_endpoint_config.address (TUTTI_TCP_INTERFACE chooses another)");
}

bool equal(const Opening& a, const Opening& b) {
  return sdk::same_bytes({reinterpret_cast<const uint8_t*>(&a), sizeof a},
                         {reinterpret_cast<const uint8_t*>(&b), sizeof b});
}

// SHA-256, so that peers do not see the host key itself.
Digest digest(const std::string& text) {
  Digest result{};
  unsigned size = 0;
  if (EVP_Digest(text.data(), text.size(), result.data(), &size, EVP_sha256(), nullptr) != 1 || size != result.size())
    throw sdk::error(TUTTI_SYSTEM, "net-tcp: OpenSSL cannot compute SHA-256");
  return result;
}

}  // namespace

Connector::Connector(Endpoint& endpoint, const tutti_endpoint_config& config,
                     std::shared_ptr<const sdk::Tls> tls)
    : endpoint_(endpoint),
      exchange_(endpoint, config, kPairFormat, {kSettingNames.begin(), kSettingNames.end()},
                {[this](uint32_t peer) { return make_offer(peer); },
                 [this](uint32_t peer, const Offer& offer) { on_offer(peer, offer); },
                 [this](uint32_t peer) { drop(peer); }}),
      sleeper_(endpoint.sleeper()),
      settings_(endpoint.settings()),
      tls_(std::move(tls)),
      rank_(endpoint.rank()),
      own_(listening_at(settings_, config.address)) {
  offer_.settings = {endpoint.nranks(),        endpoint.lanes(),      settings_.sockets, kSmallWindow,
                     settings_.fragment_bytes, settings_.eager_bytes, tls_ != nullptr};
  offer_.host = digest(settings_.host_key);
  if (own_.size() > kMaxAddresses) {
    endpoint_.log(TUTTI_LOG_WARN,
                  "this host has {} addresses; only the first {} are used: choose with TUTTI_TCP_INTERFACE",
                  own_.size(), kMaxAddresses);
    own_.erase(own_.begin() + kMaxAddresses - 1,
               own_.end() - 1);  // keeps the last one, which is loopback if there is any
  }
  std::string problem;
  for (const LocalAddress& address : own_) {
    try {
      Where where(address.ip, 0);
      Socket listener = listen(where, settings_);
      sleeper_.watch(listener.get(), EPOLLIN, mark(Watched::kListener, listeners_.size()));
      offer_.listeners[offer_.n_listeners++] = Listener::at(where);
      listeners_.push_back(std::move(listener));
    } catch (const sdk::Error& error) {
      problem = error.what();
      endpoint_.log(TUTTI_LOG_WARN, "cannot listen at {}", problem);
    }
  }
  if (listeners_.empty())
    throw endpoint_.error(TUTTI_SYSTEM, "cannot listen on any of this host's addresses: {}", problem);
}

// ---- Pair messages

Offer Connector::make_offer(uint32_t peer) {
  Handshake& handshake = handshakes_[peer];
  handshake.mine = offer_;
  sdk::fill_random(handshake.mine.knock);
  sdk::fill_random(handshake.mine.answer);
  handshake.dials = rank_ > peer;
  handshake.sockets.resize(settings_.sockets);
  return handshake.mine;
}

void Connector::receive(uint32_t peer, std::string_view bytes) {
  const auto message = exchange_.receive(peer, bytes);
  if (!message) return;
  try {
    if (message->kind != kDial && message->kind != exchange_.kCard)
      throw kPairFormat.refuse(bytes.size(), fmt::format("unknown kind {}", message->kind));
    const std::string text = kPairFormat.text_of(*message);
    Link* const link = endpoint_.link_of(peer);
    if (link) link->lose("it could not connect: " + text);  // it has no such link
    if (message->kind != kDial) return;
    if (const auto& error = exchange_.error(peer)) return exchange_.tell(peer, error->status(), error->what());
    if (link) return exchange_.tell(peer, TUTTI_PEER_FAILED, link->reason());
    on_dial(peer, message->status, text);
  } catch (const sdk::Error& error) {
    throw exchange_.impossible(peer, error);
  }
}

void Connector::on_offer(uint32_t peer, const Offer& offer) {
  const auto at = handshakes_.find(peer);
  if (at == handshakes_.end()) return;  // the peer's sockets were faster than its offer
  Handshake& handshake = at->second;
  handshake.theirs = offer;
  handshake.candidates = plausible(offer.addresses(), own_, offer.host == offer_.host);
  if (handshake.dials) dial(peer);
}

void Connector::on_dial(uint32_t peer, tutti_status status, const std::string& text) {
  const auto at = handshakes_.find(peer);
  if (at == handshakes_.end() || at->second.dials || at->second.exhausted || !at->second.theirs)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "it asks this rank to dial, but it is not its turn");
  Handshake& handshake = at->second;
  if (handshake.swapped) return exchange_.fail(peer, status, text + "; are both alive, and are their ports open?");
  handshake.dials = handshake.swapped = true;
  handshake.status = status;
  handshake.tried = text;
  for (auto& socket : handshake.sockets) socket.reset();
  dial(peer);
}

// This rank cannot accept connections, so peers that dial it would wait forever.
void Connector::refuse_dialers(const std::string& reason) {
  const std::string why = "cannot accept connections: " + reason;
  if (!std::exchange(accept_failed_, true)) endpoint_.log(TUTTI_LOG_ERROR, "{}", why);
  std::vector<uint32_t> diallers;
  for (const auto& [peer, handshake] : handshakes_)
    if (!handshake.dials && !handshake.exhausted) diallers.push_back(peer);
  for (const uint32_t peer : diallers)
    exchange_.fail(peer, TUTTI_NO_RESOURCES, fmt::format("rank {} {}", rank_, why));
}

// Dialling: socket 0 finds the address. If an address is silent for a while, the next one is tried in parallel. The
// first address at which the peer answers is taken, and the other sockets connect there.

void Connector::dial(uint32_t peer) {
  Handshake& handshake = handshakes_.at(peer);
  if (!handshake.candidates.empty()) return try_next(peer);
  std::string offered;
  for (const Where& where : handshake.theirs->addresses()) offered += (offered.empty() ? "" : ", ") + text(where);
  handshake.tried += fmt::format("{}rank {} has no address from which it could reach rank {}'s ({}): {}",
                                 handshake.tried.empty() ? "" : "; ", rank_, peer, offered,
                                 unreachable_advice(handshake.theirs->addresses(), own_, usable_addresses(), peer));
  cannot_dial(peer);
}

// Tries the next candidate with socket 0. The caller has checked that there is one.
void Connector::try_next(uint32_t peer) {
  Handshake& handshake = handshakes_.at(peer);
  const Where where = handshake.candidates[handshake.next++];
  handshake.next_at.reset();
  if (handshake.next < handshake.candidates.size()) {
    const auto all = share() / static_cast<long>(handshake.candidates.size());
    handshake.next_at = Clock::now() + (all.count() ? std::min(all, kCandidateLimit) : kCandidateLimit);
  }
  open_socket(peer, 0, where);
}

void Connector::open_socket(uint32_t peer, uint32_t index, const Where& where, int hang_ups) {
  Pending made;
  made.outgoing = true;
  made.phase = Phase::kConnecting;
  made.peer = peer;
  made.index = index;
  made.where = where;
  made.hang_ups = hang_ups;
  uint64_t id;
  try {
    made.stream = Stream(start_connecting(where, settings_));
    id = watch(made, EPOLLOUT);
  } catch (const sdk::Error& error) {
    return dial_failed(made, error);
  }
  admit(id, std::move(made));
}

void Connector::dial_failed(const Pending& p, const sdk::Error& error) {
  if (error.status() == TUTTI_PEER_FAILED && begin_again(p)) return;
  Handshake& handshake = handshakes_.at(p.peer);
  if (error.status() == TUTTI_MISMATCH || (error.status() == TUTTI_TIMEOUT && handshake.status != TUTTI_MISMATCH))
    handshake.status = error.status();
  handshake.tried +=
      fmt::format("{}rank {} tried {} ({})", handshake.tried.empty() ? "" : "; ", rank_, text(p.where), error.what());
  if (p.index == 0 && handshake.next < handshake.candidates.size()) return try_next(p.peer);
  const bool others = std::any_of(pending_.begin(), pending_.end(),
                                  [&](const auto& item) { return item.second.outgoing && item.second.peer == p.peer; });
  if (p.index != 0 || !others) cannot_dial(p.peer);
}

// The peer hangs up when the token has not come in time, most likely because this rank was outside Tutti. That may
// happen any number of times. A listener that hangs up sooner is not the peer's, or is flooded by strangers.
bool Connector::begin_again(const Pending& p) {
  const bool sooner = Clock::now() - p.begun < kStrangerLimit;
  if (sooner && p.hang_ups + 1 >= kMostHangUps) return false;
  open_socket(p.peer, p.index, p.where, p.hang_ups + (sooner ? 1 : 0));
  return true;
}

// The peer is asked to dial. If it has failed, too, this asks it to refuse: one end decides, so that both report its
// status, also where the peer has refused already and hangs up for this reason.
void Connector::cannot_dial(uint32_t peer) {
  drop_outgoing(peer);
  Handshake& handshake = handshakes_.at(peer);
  for (auto& socket : handshake.sockets) socket.reset();
  handshake.dials = false;
  handshake.exhausted = std::exchange(handshake.swapped, true);
  exchange_.send(peer, kPairFormat.encode(kDial, handshake.status, handshake.tried));
}

void Connector::drop(uint32_t peer) {
  const auto at = handshakes_.find(peer);
  if (at == handshakes_.end()) return;
  drop_outgoing(peer);
  handshakes_.erase(at);
}

void Connector::drop_outgoing(uint32_t peer) {
  handshakes_.at(peer).next_at.reset();
  std::erase_if(pending_, [&](const auto& item) { return item.second.outgoing && item.second.peer == peer; });
}

// ---- Sockets on their way

uint64_t Connector::watch(const Pending& made, uint32_t events) {
  const uint64_t id = ++next_id_;
  sleeper_.watch(made.stream.socket().get(), events, mark(Watched::kOpening, id));
  return id;
}

void Connector::admit(uint64_t id, Pending made) {
  pending_.emplace(id, std::move(made));
  advance(id);
}

void Connector::on_listener(uint64_t index) {
  if (index >= listeners_.size()) return;
  for (int i = 0; i < 16; ++i) {
    Pending made;
    made.stream = Stream(accept(listeners_[index], settings_, made.where));
    if (!made.stream.socket()) {
      if (errno == EAGAIN || errno == ECONNABORTED) return;
      return refuse_dialers(system_text(errno));
    }
    make_room();
    uint64_t id;
    try {
      if (tls_) made.stream.start_tls(*tls_, true);
      id = watch(made, EPOLLIN);
    } catch (const sdk::Error& error) {
      return refuse_dialers(error.what());
    }
    admit(id, std::move(made));
  }
}

// Drops the oldest stranger when there are too many.
void Connector::make_room() {
  const auto is_stranger = [](const auto& item) { return !item.second.outgoing; };
  const auto strangers = static_cast<size_t>(std::count_if(pending_.begin(), pending_.end(), is_stranger));
  if (strangers < std::max<size_t>(256, size_t{2} * endpoint_.nranks() * settings_.sockets)) return;
  pending_.erase(std::find_if(pending_.begin(), pending_.end(), is_stranger));
}

void Connector::advance(uint64_t id) {
  try {
    for (auto at = pending_.find(id); at != pending_.end() && step(id, at->second);) at = pending_.find(id);
  } catch (const sdk::Error& error) {
    if (!pending_.contains(id)) throw;
    fail(id, error);
  }
}

void Connector::fail(uint64_t id, const sdk::Error& error) {
  const Pending p = std::move(pending_.extract(id).mapped());
  if (p.outgoing) return dial_failed(p, error);
  // A connection that was closed by its other end is no cause for alarm: a dialler closes candidates that it does not
  // need.
  log_rejected(error.status() == TUTTI_PEER_FAILED ? TUTTI_LOG_DEBUG : TUTTI_LOG_WARN,
               p.where.address().to_string() + ": " + error.what());
}

// Does one step of a socket. True when the next step may be tried at once.
bool Connector::step(uint64_t id, Pending& p) {
  switch (p.phase) {
    case Phase::kConnecting:
      if (!has_connected(p.stream.socket(), settings_)) return false;
      if (tls_) p.stream.start_tls(*tls_, false);
      sleeper_.change(p.stream.socket().get(), EPOLLIN, mark(Watched::kOpening, id));
      p.phase = Phase::kSpeaking;
      return true;
    case Phase::kSpeaking:
      if (!send(p, {handshakes_.at(p.peer).theirs->knock, rank_, p.index})) return false;
      p.phase = Phase::kListening;
      return true;
    case Phase::kListening:
      const long n = p.stream.read(std::span(p.buffer).subspan(p.got));
      if (!moved(p, n) || (p.got += static_cast<size_t>(n)) < sizeof(Opening)) return false;
      const auto opening = std::bit_cast<Opening>(p.buffer);
      if (p.outgoing)
        on_answer(id, p, opening);
      else
        on_knock(id, p, opening);
      return false;
  }
  return false;
}

// Did a read or write of `n` bytes move any? Throws sdk::Error when the connection is over.
bool Connector::moved(Pending& p, long n) {
  if (n >= 0) return n > 0;
  if (p.stream.is_refused()) throw sdk::Error(TUTTI_MISMATCH, p.stream.problem());
  throw sdk::Error(TUTTI_PEER_FAILED, "it hung up during the handshake: " + p.stream.problem());
}

// The opening is sent whole or not at all: the buffer of a new socket has room for it, and TLS sends it as one record.
bool Connector::send(Pending& p, const Opening& opening) {
  return moved(p, p.stream.write(std::bit_cast<std::array<char, sizeof opening>>(opening)));
}

// The listening end: the token opens each socket of a handshake once.
void Connector::on_knock(uint64_t id, Pending& p, const Opening& opening) {
  const auto at = handshakes_.find(opening.rank);
  if (at == handshakes_.end() || at->second.dials || opening.socket >= at->second.sockets.size() ||
      !equal(opening, {at->second.mine.knock, opening.rank, opening.socket}) || at->second.sockets[opening.socket])
    throw sdk::Error(TUTTI_MISMATCH, "it has presented no valid token");
  send(p, {at->second.mine.answer, rank_, opening.socket});
  keep(opening.rank, opening.socket, id);
}

// The dialling end: the peer has answered, so its other addresses are not needed.
void Connector::on_answer(uint64_t id, Pending& p, const Opening& opening) {
  const uint32_t peer = p.peer, index = p.index;
  const Where where = p.where;
  if (!equal(opening, {handshakes_.at(peer).theirs->answer, peer, index}))
    throw sdk::error(TUTTI_SYSTEM, "something other than rank {} listens there", peer);
  keep(peer, index, id);
  if (index > 0) return;
  // Opening a socket may complete or end the handshake.
  for (uint32_t i = 1; i < settings_.sockets; ++i)
    if (const auto at = handshakes_.find(peer); at != handshakes_.end() && at->second.dials)
      open_socket(peer, i, where);
}

void Connector::keep(uint32_t peer, uint32_t index, uint64_t id) {
  Handshake& handshake = handshakes_.at(peer);
  Stream stream = std::move(pending_.extract(id).mapped().stream);
  sleeper_.change(stream.socket().get(), EPOLLET, mark(Watched::kOpening, id));  // the link watches it again
  handshake.sockets[index] = std::move(stream);
  if (index == 0) drop_outgoing(peer);
  std::vector<Stream> all;
  if (!std::all_of(handshake.sockets.begin(), handshake.sockets.end(), [](const auto& s) { return s.has_value(); }))
    return;
  for (auto& s : handshake.sockets) all.push_back(std::move(*s));
  handshakes_.erase(peer);
  exchange_.linked(peer);
  endpoint_.establish(peer, std::move(all));
}

// Limits the warnings about strangers.
void Connector::log_rejected(uint32_t level, const std::string& whom) {
  constexpr auto kQuiet = std::chrono::seconds(10);
  std::string others;
  if (level == TUTTI_LOG_WARN) {
    if (Clock::now() < next_warning_) {
      ++unmentioned_;
      return;
    }
    if (unmentioned_) others = fmt::format(" (and {} others before)", std::exchange(unmentioned_, 0));
    next_warning_ = Clock::now() + kQuiet;
  }
  endpoint_.log(level, "turned away a connection from {}{}", whom, others);
}

// ---- Time and the end

void Connector::progress() {
  exchange_.flush();
  const auto now = Clock::now();
  std::vector<uint64_t> late;
  for (const auto& [id, p] : pending_)
    if (const auto end = deadline(p); end && *end <= now) late.push_back(id);
  for (const uint64_t id : late) {
    advance(id);  // bytes that came while this rank was outside Tutti are in time
    const auto at = pending_.find(id);
    if (at == pending_.end() || !deadline(at->second)) continue;
    const double limit = std::chrono::duration<double>(at->second.outgoing ? share() : kStrangerLimit).count();
    fail(id, sdk::error(TUTTI_TIMEOUT, "no {} within {:.3g} s", at->second.outgoing ? "answer" : "token", limit));
  }
  std::vector<uint32_t> waiting;
  for (const auto& [peer, handshake] : handshakes_)
    if (handshake.next_at && *handshake.next_at <= now) waiting.push_back(peer);
  for (const uint32_t peer : waiting) try_next(peer);
}

std::optional<Clock::time_point> Connector::next_deadline() const {
  std::optional<Clock::time_point> first;
  const auto consider = [&](const std::optional<Clock::time_point>& t) {
    if (t && (!first || *t < *first)) first = t;
  };
  for (const auto& [id, p] : pending_) consider(deadline(p));
  for (const auto& [peer, handshake] : handshakes_) consider(handshake.next_at);
  return first;
}

void Connector::stop() {
  pending_.clear();
  handshakes_.clear();
  listeners_.clear();
}

}  // namespace tutti::tcp
