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
}  // namespace

Endpoint::Endpoint(Domain& domain, const tutti_endpoint_config& config)
    : NetworkEndpoint("net-tcp", config, UINT32_MAX, {domain.settings.fragment_bytes, kInlineBytes, kControlBytes}),
      settings_(domain.settings),
      links_(nranks()) {
  settings_.timeout = std::chrono::nanoseconds(config.timeout_ns);
  settings_.traffic_class = config.traffic_class;
  connector_ = std::make_unique<Connector>(*this, config, domain.tls);
}

// ---- Links

Link* Endpoint::reach(uint32_t peer) {
  if (links_[peer])
    links_[peer]->check_not_lost();
  else
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
    sleeper_.change(connection->descriptor(), EPOLLIN, mark_of(*connection));
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

// ---- Progress

void Endpoint::check_region(const tutti_transfer& t) const {
  if (t.region) throw refusal(t, TUTTI_INVALID_ARGUMENT, "a region, but this transport registers no memory");
}

void Endpoint::write(bool all) {
  std::erase_if(writers_, [all](Connection* c) {
    const bool done = (all || !c->is_blocked()) && c->pump();
    if (done) c->in_writers = false;
    if (all) c->end_round();
    return done;
  });
}

void Endpoint::advance() {
  const bool few = open_.size() <= kFewSockets;
  if (few)
    for (size_t i = 0; i < open_.size(); ++i)
      if (open_[i]->is_open()) open_[i]->read();
  if (!few || open_.empty() || connector_->is_busy() || ++polls_ % kQuietPolls == 0) poll_events();
  if (!writers_.empty()) write(true);
  if (has_closed_) sweep();
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
  Departures::of_process().advance();
}

bool Endpoint::arm() {
  if (has_closed_) sweep();
  if (!completions().empty() || connector_->has_mail()) return false;
  write(true);
  if (!completions().empty()) return false;
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

// ---- The end

// At a deadline the core knows which rank it waits for, and only the sockets know why nothing comes.
void Endpoint::report_stuck() const noexcept try {
  for (Connection* c : open_)
    if (const std::string text = c->stuck(); !text.empty())
      log(TUTTI_LOG_WARN, "rank {} -> rank {}: {}", rank(), c->link().peer(), text);
} catch (const std::exception&) {  // without memory nothing is said
}

void Endpoint::abort() {
  if (!is_aborted()) report_stuck();
  NetworkEndpoint::abort();
  connector_->stop();
}

Endpoint::~Endpoint() {
  try {
    connector_->stop();
    if (!is_aborted()) leave_in_order();
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
    Departures::of_process().advance();  // of endpoints closed earlier
    ::poll(nullptr, 0, 1);
  }
  for (Departure& departure : leaving) Departures::of_process().add(std::move(departure));
}

}  // namespace tutti::tcp
