// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <poll.h>

#include <algorithm>

namespace tutti::tcp {

namespace {
// With at most this many sockets, reading all of them is faster than asking which are ready. Listeners and strangers
// are then polled once in kQuietPolls polls.
constexpr size_t kFewSockets = 2;
constexpr uint32_t kQuietPolls = 64;

uint64_t mark_of(Connection& c) { return mark(Watched::kConnection, uint64_t{c.link().peer()} << 8 | c.index()); }

Settings settings_of(const Domain& domain, const tutti_endpoint_config& config) {
  Settings settings = domain.settings;
  settings.timeout = std::chrono::nanoseconds(config.timeout_ns);
  settings.traffic_class = config.traffic_class;
  return settings;
}
}  // namespace

Endpoint::Endpoint(Domain& domain, const tutti_endpoint_config& config)
    : EndpointBase("net-tcp", config, UINT32_MAX),
      settings_(settings_of(domain, config)),
      connector_(std::make_unique<Connector>(*this, config, sleeper_, domain.tls)),
      links_(nranks()),
      given_up_(nranks()) {}

// Links
// ------------------------------------------------------------------------------------------------------------------

Link* Endpoint::connect(uint32_t peer) {
  check_peer(peer);
  if (aborted_) throw error(TUTTI_ABORTED, "connect after abort");
  if (Link* link = links_[peer].get()) {
    if (link->status() == TUTTI_OK) return link;
    throw error(TUTTI_PEER_FAILED, "rank {} is lost: {}", peer, link->reason());
  }
  if (given_up_[peer]) throw error(TUTTI_PEER_FAILED, "rank {} was given up", peer);
  connector_->connect(peer);
  return links_[peer].get();
}

void Endpoint::receive_pair(uint32_t peer, std::string_view message) {
  check_peer(peer);
  connector_->receive(peer, message);
}

void Endpoint::establish(uint32_t peer, std::vector<Stream> sockets) {
  links_[peer] = std::make_unique<Link>(*this, peer, std::move(sockets));
  for (auto& connection : links_[peer]->connections()) {
    sleeper_.watch(connection->descriptor(), EPOLLIN, mark_of(*connection));
    open_.push_back(connection.get());
  }
}

void Endpoint::closing(Connection& connection) {
  sleeper_.forget(connection.descriptor());
  has_closed_ = true;
}

// Removes closed sockets from the lists. Not to be called while a list is iterated.
void Endpoint::sweep() {
  has_closed_ = false;
  const auto is_closed = [](const Connection* c) { return !c->is_open(); };
  std::erase_if(open_, is_closed);
  std::erase_if(writers_, is_closed);
}

// Transfers
// --------------------------------------------------------------------------------------------------------------

// Throws when a transfer can never be accepted.
void Endpoint::check(const tutti_transfer& t) const {
  if (aborted_) throw refusal(t, TUTTI_ABORTED, "the endpoint was aborted");
  check_shape(t, settings_.fragment_bytes, kInlineBytes);
  if (t.region) throw refusal(t, TUTTI_INVALID_ARGUMENT, "a region, but this transport registers no memory");
  const Link& link = sdk::from_handle<Link>(t.link);
  if (&link.endpoint() != this) throw refusal(t, TUTTI_INVALID_ARGUMENT, "a link of another endpoint");
  if (link.status() != TUTTI_OK) throw refusal(t, link.status(), link.reason());
}

uint32_t Endpoint::post(std::span<const tutti_transfer> transfers) {
  const uint32_t n = sdk::post_in_order(transfers, [this](const tutti_transfer& t) {
    check(t);
    Link& link = sdk::from_handle<Link>(t.link);
    return t.kind == TUTTI_TRANSFER_SEND ? link.post_send(t) : link.post_receive(t);
  });
  flush();
  return n;
}

void Endpoint::flush(bool all) {
  std::erase_if(writers_, [all](Connection* c) {
    const bool done = (all || !c->is_blocked()) && c->pump();
    if (done) c->in_writers = false;
    if (all) c->end_round();
    return done;
  });
}

// Progress
// ---------------------------------------------------------------------------------------------------------------

void Endpoint::report_lost(uint32_t peer, const std::string& reason) {
  log(TUTTI_LOG_WARN, "rank {} is lost: {}", peer, reason);
  completions_.peer_failed(peer, says("rank {} is lost: {}", peer, reason));
}

uint32_t Endpoint::progress(std::span<tutti_completion> completions) {
  const auto announces = [this](uint32_t peer) {
    links_[peer]->reported();
    return true;
  };
  completions_.forget_batch();
  const uint32_t n = completions_.hand_over(completions, 0, announces);
  if (!completions_.empty()) return n;  // reads no more than can be handed over, which bounds the queue
  poll_sockets();
  if (!writers_.empty()) flush(true);
  if (has_closed_) sweep();
  return completions_.hand_over(completions, n, announces);
}

void Endpoint::poll_sockets() {
  const bool few = open_.size() <= kFewSockets;
  if (few)
    for (size_t i = 0; i < open_.size(); ++i)
      if (open_[i]->is_open()) open_[i]->read();
  if (!few || open_.empty() || connector_->is_busy() || ++polls_ % kQuietPolls == 0) poll_events();
}

void Endpoint::poll_events() {
  for (const epoll_event& event : sleeper_.ready()) {
    const uint64_t id = event.data.u64 & (mark(Watched{1}, 0) - 1);
    switch (static_cast<Watched>(event.data.u64 >> 56)) {
      case Watched::kListener:
        connector_->on_listener(id);
        break;
      case Watched::kOpening:
        connector_->advance(id);
        break;
      case Watched::kConnection:
        if (Connection& c = *links_[id >> 8]->connections()[id & 0xff]; c.is_open()) c.read();
        break;
    }
  }
  if (connector_->is_busy()) connector_->progress();
  advance_departures();
}

bool Endpoint::arm() {
  if (has_closed_) sweep();
  if (!completions_.empty() || connector_->has_mail()) return false;
  flush(true);
  if (!completions_.empty()) return false;
  for (Connection* c : open_) {
    c->wakes_for_room = c->in_writers || c->is_waited_for();
    if (c->wakes_for_room) sleeper_.change(c->descriptor(), EPOLLIN | EPOLLOUT, mark_of(*c));
  }
  if (const auto next = connector_->next_deadline())
    sleeper_.wake_after(std::max<std::chrono::nanoseconds>(*next - Clock::now(), std::chrono::nanoseconds(1)));
  return true;
}

void Endpoint::disarm() noexcept {
  try {
    for (Connection* c : open_) {
      if (!std::exchange(c->wakes_for_room, false) || !c->is_open()) continue;
      sleeper_.change(c->descriptor(), EPOLLIN, mark_of(*c));
      c->end_round();
    }
    sleeper_.wake_after({});
  } catch (const std::exception& e) {
    log(TUTTI_LOG_ERROR, "{}", e.what());
  }
}

// The end
// ----------------------------------------------------------------------------------------------------------------

void Endpoint::fail_peer(uint32_t peer) {
  check_peer(peer);
  given_up_[peer] = true;
  connector_->give_up(peer);
  if (links_[peer]) links_[peer]->end(TUTTI_PEER_FAILED, "this rank has given it up");
}

void Endpoint::abort() {
  if (aborted_) return;
  aborted_ = true;
  for (uint32_t peer = 0; peer < nranks(); ++peer) connector_->give_up(peer);
  connector_->stop();
  for (auto& link : links_)
    if (link) link->end(TUTTI_ABORTED, "the endpoint was aborted");
}

Endpoint::~Endpoint() {
  try {
    connector_->stop();
    if (!aborted_) leave_in_order();
  } catch (const std::exception& e) {
    log(TUTTI_LOG_ERROR, "while closing: {}", e.what());
  }
}

// Completed messages must still arrive, whatever the peers send meanwhile. A peer that does not take them is waited for
// at most kLinger; the rest leaves later while this process runs.
void Endpoint::leave_in_order() {
  const auto deadline = Clock::now() + kLinger;
  std::vector<Departure> leaving;
  for (Connection* c : open_)
    if (c->is_open()) leaving.push_back(c->depart());
  for (;;) {
    std::erase_if(leaving, [](Departure& departure) { return departure.advance(); });
    if (leaving.empty() || Clock::now() >= deadline) break;
    advance_departures();  // of endpoints closed earlier
    ::poll(nullptr, 0, 1);
  }
  leave_behind(std::move(leaving));
}

}  // namespace tutti::tcp
