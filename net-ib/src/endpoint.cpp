// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <tutti/sdk/endpoint.hpp>
#include <tutti/sdk/transport.hpp>

namespace tutti::ib {
namespace {

constexpr uint32_t kBatch = 32;
// The clock is read once in so many polls.
constexpr uint32_t kClockPolls = 64;
// More address handles than this are let go, oldest first: their datagrams left long ago.
constexpr size_t kKeptHandles = 256;

Shape shape_of(const Settings& s, const tutti_endpoint_config& config) {
  return {config.nranks, config.lanes, s.credits, 0, s.eager_bytes, s.fragment_bytes, config.communicator_id};
}

}  // namespace

Endpoint::Endpoint(Domain& domain, const tutti_endpoint_config& config)
    : domain_(domain),
      rank_(config.rank),
      name_(config.name ? config.name : ""),
      shape_(shape_of(domain.settings(), config)) {
  if (config.nranks == 0 || config.rank >= config.nranks || config.lanes == 0 || config.lanes > kMaxLanes ||
      (config.secret_bytes > 0 && !config.secret))
    throw sdk::Error(
        TUTTI_INVALID_ARGUMENT,
        says("open_endpoint with rank " + std::to_string(config.rank) + " of " + std::to_string(config.nranks) + ", " +
             std::to_string(config.lanes) + " lanes (at most " + std::to_string(kMaxLanes) + ") and a secret of " +
             std::to_string(config.secret_bytes) + " bytes at " + (config.secret ? "an address" : "NULL")));
  links_.resize(config.nranks);
  given_up_.resize(config.nranks);
  try {
    for (uint32_t i = 0; i < domain.rails().size(); ++i) {
      rails_.push_back(std::make_unique<Rail>(domain, i, shape_, config.nranks - 1));
      sleeper_.watch(rails_.back()->event_descriptor());
    }
  } catch (const sdk::Error& error) {
    throw sdk::Error(error.status(), says(error.what()));
  }
  greeter_ = std::make_unique<Greeter>(*this, rank_, config.secret, config.secret_bytes);
}

std::string Endpoint::says(const std::string& text) const {
  return "rank " + std::to_string(rank_) + ": net-ib: " + text + (name_.empty() ? "" : " [" + name_ + "]");
}

void Endpoint::log(uint32_t level, const std::string& text) const { sdk::log(level, says(text)); }

// Links
// ----------------------------------------------------------------------------------------------------------------

void Endpoint::check_peer(uint32_t peer) const {
  if (peer >= shape_.nranks || peer == rank_)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, says("rank " + std::to_string(peer) + " is no peer of rank " +
                                                  std::to_string(rank_) + " of " + std::to_string(shape_.nranks)));
}

Link* Endpoint::connect(uint32_t peer, std::string_view address) {
  check_peer(peer);
  if (aborted_) throw sdk::Error(TUTTI_ABORTED, says("connect after abort"));
  if (given_up_[peer]) throw sdk::Error(TUTTI_PEER_FAILED, says("rank " + std::to_string(peer) + " was given up"));
  if (Link* link = links_[peer].get()) {
    if (!link->is_up())
      throw sdk::Error(TUTTI_PEER_FAILED, says("rank " + std::to_string(peer) + " is lost: " + link->reason()));
    if (link->is_ready()) {
      greeter_->forget(peer);
      return link;
    }
  }
  greeter_->connect(peer, address);
  flush();
  return nullptr;
}

std::unique_ptr<Path> Endpoint::make_path(Rail& rail, uint32_t index) {
  if (paths_.size() == kMaxPaths) throw sdk::Error(TUTTI_NO_RESOURCES, says("no more queue pairs can be told apart"));
  auto path = std::make_unique<Path>(rail, index, static_cast<uint32_t>(paths_.size()), shape_);
  paths_.push_back(path.get());
  path->owner = &paths_;
  return path;
}

const AddressHandle& Endpoint::keep(AddressHandle handle) {
  if (kept_.size() >= kKeptHandles) kept_.pop_front();
  kept_.push_back(std::move(handle));
  return kept_.back();
}

void Endpoint::establish(uint32_t peer, std::vector<std::unique_ptr<Path>> paths, bool ready) {
  links_[peer] = std::make_unique<Link>(*this, peer, std::move(paths), ready);
  if (ready) wants_advance(*links_[peer]);
}

// Transfers
// ------------------------------------------------------------------------------------------------------------

// Whether a transfer can ever be taken; says why not when asked to.
tutti_status Endpoint::check(const tutti_transfer& t, std::string* why) const {
  const bool send = t.kind == TUTTI_TRANSFER_SEND, inlined = t.flags & TUTTI_TRANSFER_INLINE;
  tutti_status status = TUTTI_INVALID_ARGUMENT;
  const char* text = "";
  const Link* link = t.link ? &sdk::from_handle<Link>(t.link) : nullptr;
  if (aborted_) {
    status = TUTTI_ABORTED, text = "the endpoint was aborted";
  } else if (!link || (!send && t.kind != TUTTI_TRANSFER_RECV) || t.lane >= shape_.lanes || (!t.data && t.bytes)) {
    text = "no link, no such kind or lane, or no memory";
  } else if (t.flags & ~TUTTI_TRANSFER_INLINE) {
    status = TUTTI_NOT_SUPPORTED, text = "an unknown flag";
  } else if (t.bytes > shape_.fragment_bytes) {
    text = "larger than fragment_bytes";
  } else if (inlined && (!send || t.bytes > shape_.eager_bytes)) {
    text = "INLINE is for sends of at most inline_bytes";
  } else if (inlined && t.region && sdk::from_handle<Region>(t.region).on_device) {
    text = "INLINE is for host memory";
  } else if (t.region && !sdk::from_handle<Region>(t.region).holds(t.data, t.bytes)) {
    text = "its region does not hold its memory";
  } else if (&const_cast<Link*>(link)->endpoint() != this) {
    text = "a link of another endpoint";
  } else if ((status = link->usable(t.lane, t.kind)) != TUTTI_OK) {
    text = link->reason().c_str();
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

bool Endpoint::send_control(Link& link, std::string_view message) {
  if (message.size() > TUTTI_CONTROL_BYTES || (!message.data() && !message.empty()))
    throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                     says("a control message has " + std::to_string(message.size()) + " bytes, at most " +
                          std::to_string(TUTTI_CONTROL_BYTES) + " are allowed"));
  if (!link.is_up() || link.is_departed()) {
    const tutti_status status = link.usable(0, TUTTI_TRANSFER_SEND);
    throw sdk::Error(status,
                     says("no control message can reach rank " + std::to_string(link.peer()) + ": " + link.reason()));
  }
  bool sent = link.take_control(message);
  if (!sent && completions_.empty()) {  // the peer may have made room since the last progress
    advance();
    sent = link.is_up() && !link.is_departed() && link.take_control(message);
  }
  flush();
  return sent;
}

void Endpoint::wants_flush(Path& path) {
  if (path.in_unflushed) return;
  path.in_unflushed = true;
  unflushed_.push_back(&path);
}

void Endpoint::wants_advance(Link& link) {
  if (link.in_working) return;
  link.in_working = true;
  working_.push_back(&link);
}

void Endpoint::flush() {
  for (size_t i = 0; i < unflushed_.size(); ++i) {
    Path& path = *unflushed_[i];
    path.in_unflushed = false;
    std::string why;
    if (!path.flush(&why)) path_failed(path, why);
  }
  unflushed_.clear();
}

// Progress
// -------------------------------------------------------------------------------------------------------------

void Endpoint::deliver_control(uint32_t peer, const char* bytes, uint64_t size) {
  std::unique_ptr<char[]> data(new char[size ? size : 1]);
  std::memcpy(data.get(), bytes, size);
  const char* address = data.get();
  completions_.push({{TUTTI_COMPLETION_CONTROL, TUTTI_OK, peer, 0, 0, size, address, 0}, std::move(data)});
}

void Endpoint::report_lost(uint32_t peer, const std::string& reason) {
  const std::string what = "rank " + std::to_string(peer) + " is lost: " + reason;
  log(TUTTI_LOG_WARN, what);
  const std::string text = says(what);
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
  const uint32_t n = hand_over(completions, 0);
  if (!completions_.empty()) return n;  // nothing is taken in that could not be handed over: that bounds the queue
  advance();
  return hand_over(completions, n);
}

// One round of everything; whether anything came.
bool Endpoint::advance() {
  bool any = false;
  for (auto& rail : rails_) any |= poll(*rail);
  if (!leaving_.empty()) {
    for (auto& rail : rails_)
      while (poll(*rail)) {
      }
    for (size_t i = 0; i < leaving_.size(); ++i) leaving_[i]->on_goodbye();
    leaving_.clear();
  }
  if (!failed_.empty()) settle_failures();
  if (++polls_ % kClockPolls == 0) watch_the_clock();
  if (!working_.empty()) advance_links();
  flush();
  return any;
}

void Endpoint::watch_the_clock() {
  const auto now = Clock::now();
  if (greeter_->is_busy()) greeter_->tick(now);
  if (now < next_heartbeat_ || closing_) return;
  next_heartbeat_ = now + kHeartbeatPeriod;
  for (auto& link : links_)
    if (link) link->heartbeat();
}

bool Endpoint::poll(Rail& rail) {
  ibv_wc wcs[kBatch];
  const uint32_t n = rail.poll(wcs);
  for (uint32_t i = 0; i < n; ++i) handle(rail, wcs[i]);
  if (n) rail.recycle();
  return n != 0;
}

void Endpoint::handle(Rail& rail, const ibv_wc& wc) {
  const auto index = static_cast<uint32_t>(wc.wr_id);
  switch (static_cast<Work>(wc.wr_id >> 56)) {
    case Work::kReceive:
      on_receive(rail, wc);
      return rail.give_back(index);
    case Work::kSent:
      return on_sent(wc);
    case Work::kHeartbeat:
      return on_heartbeat(wc);
    case Work::kGreetingIn:
      if (wc.status == IBV_WC_SUCCESS && wc.byte_len == 40 + sizeof(Greeting) && !aborted_)
        greeter_->on_greeting(rail, rail.greeting(index), wc.src_qp);
      return rail.give_back_greeting(index);
    case Work::kGreetingOut:
      return rail.greeting_sent();
  }
}

void Endpoint::on_receive(Rail& rail, const ibv_wc& wc) {
  Path* path = rail.path_of(wc.qp_num);
  if (!path || !path->link) return;
  if (wc.status != IBV_WC_SUCCESS) return path_failed(*path, in_words(wc.status));
  path->take();
  ++rail.frames_received;
  Link& link = *path->link;
  if (!link.is_up()) return;
  if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    rail.bytes_received += wc.byte_len;
    link.on_written(*path, ntohl(wc.imm_data), wc.byte_len);
  } else {
    rail.bytes_received += wc.byte_len - std::min<uint64_t>(wc.byte_len, sizeof(Frame));
    link.on_frame(*path, rail.slot(static_cast<uint32_t>(wc.wr_id)), wc.byte_len);
  }
  if (link.is_up() && path->is_up() && path->owes_credit()) {
    path->tell_credit();
    wants_flush(*path);
  }
}

void Endpoint::on_sent(const ibv_wc& wc) {
  const auto id = static_cast<uint32_t>(wc.wr_id >> 32 & 0xffffff), index = static_cast<uint32_t>(wc.wr_id);
  Path* path = paths_[id];
  if (!path || !path->link) return;
  if (wc.status != IBV_WC_SUCCESS) return path_failed(*path, in_words(wc.status));
  if (path->state() == Path::State::kDead) return;
  while (static_cast<int32_t>(path->acked() - index) <= 0) {
    const Flight flight = path->flight(path->acked());
    path->acknowledge_one();
    path->link->on_acked(flight);
  }
  if (path->link->has_work()) wants_advance(*path->link);
}

void Endpoint::on_heartbeat(const ibv_wc& wc) {
  Path* path = paths_[wc.wr_id >> 32 & 0xffffff];
  if (!path || !path->link) return;
  path->heartbeat_answered();
  if (wc.status != IBV_WC_SUCCESS) path_failed(*path, in_words(wc.status));
}

void Endpoint::advance_links() {
  std::vector<Link*> links;
  links.swap(working_);
  for (Link* link : links) {
    link->in_working = false;
    link->advance();
    if (link->has_work()) wants_advance(*link);
  }
}

// Failed paths are stopped and drained outside of the handling of any completion.
void Endpoint::path_failed(Path& path, const std::string& reason) {
  if (!path.is_up() || path.failing) return;
  path.failing = true;
  path.failure = reason;
  if (path.rail().is_down()) path.failure += " (this rank's own port is down)";
  failed_.push_back(path.id());
}

void Endpoint::settle_failures() {
  while (!failed_.empty()) {
    Path* path = paths_[failed_.back()];
    failed_.pop_back();
    if (!path || !path->is_up()) continue;
    const auto drain = [&] {
      while (poll(path->rail())) {
      }
    };
    flush();
    path->halt();
    drain();
    path->reset();
    drain();
    path->link->on_path_failed(*path);
  }
}

// Sleeping
// -------------------------------------------------------------------------------------------------------------

bool Endpoint::arm() {
  if (!completions_.empty()) return false;
  for (auto& rail : rails_) rail->arm();
  for (Link* link : working_) link->ask_all();
  const bool any = advance();
  if (any || !completions_.empty()) return false;
  polls_ = kClockPolls - 1;  // the clock is read at once after the sleep
  std::chrono::nanoseconds delay = kHeartbeatPeriod;
  if (const auto next = greeter_->next_deadline())
    delay = std::clamp<std::chrono::nanoseconds>(*next - Clock::now(), std::chrono::nanoseconds(1), delay);
  sleeper_.wake_after(delay);
  return true;
}

void Endpoint::disarm() noexcept {
  for (auto& rail : rails_) rail->take_events();
  sleeper_.wake_after({});
}

// The end
// --------------------------------------------------------------------------------------------------------------

void Endpoint::fail_peer(uint32_t peer) {
  check_peer(peer);
  given_up_[peer] = true;
  greeter_->forget(peer);
  if (links_[peer]) links_[peer]->end(TUTTI_PEER_FAILED, "this rank has given it up");
}

void Endpoint::abort() {
  if (aborted_) return;
  aborted_ = true;
  greeter_->stop();
  for (auto& link : links_)
    if (link) link->end(TUTTI_ABORTED, "the endpoint was aborted");
}

Endpoint::~Endpoint() {
  closing_ = true;
  try {
    greeter_->stop();
    if (!aborted_) leave_in_order();
    report_rails();
  } catch (const std::exception& e) {
    log(TUTTI_LOG_ERROR, std::string("while closing: ") + e.what());
  }
}

// What was completed must still arrive; then the peers hear that nothing follows. Whoever does not take it is not
// waited for longer than kLinger.
void Endpoint::leave_in_order() {
  const auto deadline = Clock::now() + kLinger;
  const auto wait = [&] {
    const auto drained = [](const auto& link) { return !link || link->is_drained(); };
    while (!std::all_of(links_.begin(), links_.end(), drained) && Clock::now() < deadline) {
      completions_.clear();
      if (!advance()) ::poll(nullptr, 0, 0);
    }
  };
  for (auto& link : links_)
    if (link) link->ask_for_acknowledgement();
  flush();
  wait();
  for (auto& link : links_)
    if (link) link->say_goodbye();
  advance();
  wait();
}

std::vector<sdk::RailFacts> Endpoint::rail_facts() const {
  std::vector<sdk::RailFacts> all;
  for (const auto& rail : rails_) {
    sdk::RailFacts facts = facts_of(rail->port(), settings());
    facts.sent_bytes = rail->bytes_sent;
    facts.received_bytes = rail->bytes_received;
    all.push_back(std::move(facts));
  }
  return all;
}

void Endpoint::report_rails() const {
  for (const auto& rail : rails_)
    log(TUTTI_LOG_INFO, "rail " + rail->port().name() + ": sent " + std::to_string(rail->bytes_sent) + " bytes in " +
                            std::to_string(rail->frames_sent) + " frames, received " +
                            std::to_string(rail->bytes_received) + " bytes in " +
                            std::to_string(rail->frames_received));
}

}  // namespace tutti::ib
