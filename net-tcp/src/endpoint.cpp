// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <tutti/sdk/endpoint.hpp>
#include <tutti/sdk/transport.hpp>

namespace tutti::tcp {

namespace {
// With so few sockets it is quicker to read them than to ask which are ready; the rest (listeners, strangers) is looked
// at once in kQuietPolls polls.
constexpr size_t kFewSockets = 2;
constexpr uint32_t kQuietPolls = 64;

Shape shape_of(const Settings& settings, const tutti_endpoint_config& config) {
  return {config.nranks,           config.lanes,         settings.sockets,      kEagerWindow,
          settings.fragment_bytes, settings.eager_bytes, config.communicator_id};
}
}  // namespace

Endpoint::Endpoint(Domain& domain, const tutti_endpoint_config& config)
    : settings_(domain.settings),
      rank_(config.rank),
      name_(config.name ? config.name : ""),
      shape_(shape_of(domain.settings, config)) {
  if (config.nranks == 0 || config.rank >= config.nranks || config.lanes == 0 ||
      (config.secret_bytes > 0 && !config.secret))
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, says("open_endpoint with rank " + std::to_string(config.rank) + " of " +
                                                  std::to_string(config.nranks) + ", " + std::to_string(config.lanes) +
                                                  " lanes and a secret of " + std::to_string(config.secret_bytes) +
                                                  " bytes at " + (config.secret ? "an address" : "NULL")));
  links_.resize(config.nranks);
  given_up_.resize(config.nranks);
  connector_ = std::make_unique<Connector>(*this, domain.io, poller_, settings_, domain.tls, shape_, rank_,
                                           config.secret, config.secret_bytes);
}

std::string Endpoint::says(const std::string& text) const {
  return "rank " + std::to_string(rank_) + ": net-tcp: " + text + (name_.empty() ? "" : " [" + name_ + "]");
}

void Endpoint::log(uint32_t level, const std::string& text) const { sdk::log(level, says(text)); }

// Links
// ------------------------------------------------------------------------------------------------------------------

void Endpoint::check_peer(uint32_t peer) const {
  if (peer >= shape_.nranks || peer == rank_)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, says("rank " + std::to_string(peer) + " is no peer of rank " +
                                                  std::to_string(rank_) + " of " + std::to_string(shape_.nranks)));
}

Link* Endpoint::connect(uint32_t peer, std::string_view address) {
  check_peer(peer);
  if (aborted_) throw sdk::Error(TUTTI_ABORTED, says("connect after abort"));
  if (Link* link = links_[peer].get()) {
    if (link->is_up()) return link;
    throw sdk::Error(TUTTI_PEER_FAILED, says("rank " + std::to_string(peer) + " is lost: " + link->reason()));
  }
  if (given_up_[peer]) throw sdk::Error(TUTTI_PEER_FAILED, says("rank " + std::to_string(peer) + " was given up"));
  connector_->connect(peer, PeerAddress::decode(address));
  return links_[peer].get();
}

void Endpoint::establish(uint32_t peer, std::vector<Stream> sockets) {
  links_[peer] = std::make_unique<Link>(*this, peer, std::move(sockets));
  for (auto& connection : links_[peer]->connections()) {
    poller_.watch(connection->descriptor(), EPOLLIN, Watched::kConnection, uint64_t{peer} << 8 | connection->index());
    open_.push_back(connection.get());
  }
}

void Endpoint::closing(Connection& connection) {
  poller_.forget(connection.descriptor());
  has_closed_ = true;
}

// Takes closed sockets off the lists; never while a list is walked.
void Endpoint::sweep() {
  has_closed_ = false;
  const auto is_closed = [](const Connection* c) { return !c->is_open(); };
  std::erase_if(open_, is_closed);
  std::erase_if(writers_, is_closed);
  std::erase_if(sleepers_, is_closed);
}

// Transfers
// --------------------------------------------------------------------------------------------------------------

// Whether a transfer can ever be taken; says why not when asked to.
tutti_status Endpoint::check(const tutti_transfer& t, std::string* why) const {
  const bool send = t.kind == TUTTI_TRANSFER_SEND, inlined = t.flags & TUTTI_TRANSFER_INLINE;
  tutti_status status = TUTTI_OK;
  const char* text = "";
  if (aborted_) {
    status = TUTTI_ABORTED, text = "the endpoint was aborted";
  } else if (!t.link || (!send && t.kind != TUTTI_TRANSFER_RECV) || t.lane >= shape_.lanes || (!t.data && t.bytes)) {
    status = TUTTI_INVALID_ARGUMENT, text = "no link, no such kind or lane, or no memory";
  } else if (t.flags & ~TUTTI_TRANSFER_INLINE) {
    status = TUTTI_NOT_SUPPORTED, text = "an unknown flag";
  } else if (t.bytes > settings_.fragment_bytes) {
    status = TUTTI_INVALID_ARGUMENT, text = "larger than fragment_bytes";
  } else if (inlined && (!send || t.bytes > kInlineBytes)) {
    status = TUTTI_INVALID_ARGUMENT, text = "INLINE is for sends of at most inline_bytes";
  } else if (t.region) {
    status = TUTTI_INVALID_ARGUMENT, text = "a region, but this transport registers no memory";
  } else {
    Link& link = sdk::from_handle<Link>(t.link);
    if (&link.endpoint() != this) {
      status = TUTTI_INVALID_ARGUMENT, text = "a link of another endpoint";
    } else if ((status = link.usable(t.lane, t.kind)) != TUTTI_OK) {
      text = link.reason().c_str();
    }
  }
  if (why && status != TUTTI_OK) *why = says(sdk::describe(t, shape_.lanes) + ": " + text);
  return status;
}

uint32_t Endpoint::post(std::span<const tutti_transfer> transfers) {
  const uint32_t n = sdk::post_in_order(
      transfers, [this](const tutti_transfer& t, std::string* why) { return check(t, why); },
      [](const tutti_transfer& t) {
        Link& link = sdk::from_handle<Link>(t.link);
        return t.kind == TUTTI_TRANSFER_SEND ? link.post_send(t) : link.post_receive(t);
      });
  flush();
  return n;
}

void Endpoint::flush() {
  size_t kept = 0;
  for (size_t i = 0; i < writers_.size(); ++i) {
    Connection* c = writers_[i];
    if (c->is_blocked() || !c->pump()) {
      writers_[kept++] = c;
    } else {
      c->in_writers = false;
    }
  }
  writers_.resize(kept);
}

void Endpoint::pump_writers() {
  size_t kept = 0;
  for (size_t i = 0; i < writers_.size(); ++i) {
    Connection* c = writers_[i];
    if (c->pump()) {
      c->in_writers = false;
    } else {
      writers_[kept++] = c;
    }
  }
  writers_.resize(kept);
}

// Progress
// ---------------------------------------------------------------------------------------------------------------

void Endpoint::deliver_control(uint32_t peer, std::unique_ptr<char[]> data, uint64_t bytes) {
  const char* address = data.get();
  completions_.push({{TUTTI_COMPLETION_CONTROL, TUTTI_OK, peer, 0, 0, bytes, address, 0}, std::move(data)});
}

void Endpoint::report_lost(uint32_t peer, const std::string& reason) {
  const std::string text = says("rank " + std::to_string(peer) + " is lost: " + reason);
  log(TUTTI_LOG_WARN, "rank " + std::to_string(peer) + " is lost: " + reason);
  std::unique_ptr<char[]> data(new char[text.size() + 1]);
  std::memcpy(data.get(), text.c_str(), text.size() + 1);
  const char* address = data.get();
  completions_.push(
      {{TUTTI_COMPLETION_PEER_FAILED, TUTTI_PEER_FAILED, peer, 0, 0, text.size(), address, 0}, std::move(data)});
}

uint32_t Endpoint::hand_over(std::span<tutti_completion> completions, uint32_t n) {
  for (; n < completions.size() && !completions_.empty(); ++n) {
    Pending pending = completions_.pop();
    completions[n] = pending.record;
    if (pending.data) handed_over_.push_back(std::move(pending.data));
  }
  return n;
}

uint32_t Endpoint::progress(std::span<tutti_completion> completions) {
  if (!handed_over_.empty()) handed_over_.clear();
  uint32_t n = hand_over(completions, 0);
  if (!completions_.empty()) return n;  // nothing is read that could not be handed over: that bounds the queue
  poll_sockets();
  if (!writers_.empty()) pump_writers();
  if (has_closed_) sweep();
  return hand_over(completions, n);
}

void Endpoint::poll_sockets() {
  const bool few = open_.size() <= kFewSockets;
  if (few)
    for (size_t i = 0; i < open_.size(); ++i)
      if (open_[i]->is_open()) open_[i]->read();
  if (!few || open_.empty() || connector_->is_busy() || ++polls_ % kQuietPolls == 0) poll_events();
}

void Endpoint::poll_events() {
  if (connector_->is_busy()) connector_->check_deadlines(Clock::now());
  for (const epoll_event& event : poller_.ready()) {
    const uint64_t id = Poller::id(event);
    switch (Poller::kind(event)) {
      case Watched::kListener:
        connector_->on_listener(id);
        break;
      case Watched::kHandshake:
        connector_->on_handshake(id);
        break;
      case Watched::kConnection:
        if (Link* link = links_[id >> 8].get())
          if (Connection& c = *link->connections()[id & 0xff]; c.is_open()) c.read();
        break;
      case Watched::kTimer:
        poller_.wake_after({});
        break;
    }
  }
}

bool Endpoint::arm() {
  if (has_closed_) sweep();
  if (!completions_.empty()) return false;
  pump_writers();
  if (!completions_.empty()) return false;
  for (Connection* c : writers_) {
    poller_.change(c->descriptor(), EPOLLIN | EPOLLOUT, Watched::kConnection,
                   uint64_t{c->link().peer()} << 8 | c->index());
    sleepers_.push_back(c);
  }
  if (const auto next = connector_->next_deadline())
    poller_.wake_after(std::max<std::chrono::nanoseconds>(*next - Clock::now(), std::chrono::nanoseconds(1)));
  return true;
}

void Endpoint::disarm() noexcept {
  try {
    for (Connection* c : sleepers_)
      if (c->is_open())
        poller_.change(c->descriptor(), EPOLLIN, Watched::kConnection, uint64_t{c->link().peer()} << 8 | c->index());
    poller_.wake_after({});
  } catch (const std::exception& e) {
    log(TUTTI_LOG_ERROR, e.what());
  }
  sleepers_.clear();
}

// The end
// ----------------------------------------------------------------------------------------------------------------

void Endpoint::fail_peer(uint32_t peer) {
  check_peer(peer);
  given_up_[peer] = true;
  connector_->forget(peer);
  if (links_[peer]) links_[peer]->end(TUTTI_PEER_FAILED, "this rank has given it up");
}

void Endpoint::abort() {
  if (aborted_) return;
  aborted_ = true;
  connector_->stop();
  for (auto& link : links_)
    if (link) link->end(TUTTI_ABORTED, "the endpoint was aborted");
}

Endpoint::~Endpoint() {
  try {
    connector_->stop();
    if (!aborted_) leave_in_order();
  } catch (const std::exception& e) {
    log(TUTTI_LOG_ERROR, std::string("while closing: ") + e.what());
  }
}

// What was completed must still arrive: first what waits in our own queues, then what the kernel holds. A peer that
// does not take it is not waited for longer than kLinger.
void Endpoint::leave_in_order() {
  const auto deadline = Clock::now() + kLinger;
  const auto must_leave = [](Connection* c) { return c->is_open() && c->queued_bytes() > 0; };
  while (std::any_of(open_.begin(), open_.end(), must_leave) && Clock::now() < deadline) {
    for (size_t i = 0; i < open_.size(); ++i)
      if (open_[i]->is_open()) open_[i]->read();
    pump_writers();
    sweep();
    if (std::any_of(open_.begin(), open_.end(), must_leave)) ::poll(nullptr, 0, 1);
  }
  std::vector<Connection*> leaving;
  for (Connection* c : open_)
    if (c->is_open() && c->say_goodbye()) leaving.push_back(c);
  for (;;) {
    std::erase_if(leaving, [](Connection* c) { return c->drained(); });
    if (leaving.empty() || Clock::now() >= deadline) break;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace tutti::tcp
