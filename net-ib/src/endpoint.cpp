// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>

namespace tutti::ib {
namespace {

constexpr uint32_t kBatch = 32;
// The clock is read once in so many polls.
constexpr uint32_t kClockPolls = 64;
// A failed path, or a pair message that waits for room, is looked at this often while the rank sleeps.
constexpr std::chrono::milliseconds kShortSleep{1};

Shape shape_of(const Settings& s, const tutti_endpoint_config& config) {
  return {config.nranks, config.lanes, s.credits, 0, s.eager_bytes, s.fragment_bytes};
}

}  // namespace

Endpoint::Endpoint(Domain& domain, const tutti_endpoint_config& config)
    : EndpointBase("net-ib", config, kMaxLanes),
      domain_(domain),
      shape_(shape_of(domain.settings(), config)),
      pairs_(config),
      peers_(config.nranks) {
  try {
    for (uint32_t i = 0; i < domain.rails().size(); ++i) {
      rails_.push_back(std::make_unique<Rail>(domain, i, shape_, static_cast<uint8_t>(config.traffic_class)));
      sleeper_.watch(rails_.back()->event_descriptor());
    }
  } catch (const sdk::Error& why) {
    throw error(why.status(), "{}", why.what());
  }
  told_idle_.resize(rails_.size());
}

// Transfers
// ------------------------------------------------------------------------------------------------------------

// Throws where a transfer can never be taken.
void Endpoint::check(const tutti_transfer& t) const {
  if (aborted_) throw refusal(t, TUTTI_ABORTED, "the endpoint was aborted");
  check_shape(t, shape_.fragment_bytes, shape_.eager_bytes);
  if (t.region) {
    const Region& region = sdk::from_handle<Region>(t.region);
    if ((t.flags & TUTTI_TRANSFER_INLINE) && region.on_device)
      throw refusal(t, TUTTI_INVALID_ARGUMENT, "INLINE is for host memory");
    if (!region.holds(t.data, t.bytes)) throw refusal(t, TUTTI_INVALID_ARGUMENT, "its region does not hold its memory");
  }
  Link& link = sdk::from_handle<Link>(t.link);
  if (&link.endpoint() != this) throw refusal(t, TUTTI_INVALID_ARGUMENT, "a link of another endpoint");
  if (const tutti_status status = link.refusal()) throw refusal(t, status, link.reason());
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

bool Endpoint::send_control(Link& link, std::string_view message) {
  if (message.size() > shape_.eager_bytes || (!message.data() && !message.empty()))
    throw error(TUTTI_INVALID_ARGUMENT, "a control message has {} bytes, at most {} are allowed", message.size(),
                shape_.eager_bytes);
  if (const tutti_status status = link.refusal())
    throw error(status, "no control message can reach rank {}: {}", link.peer(), link.reason());
  if (link.is_departed()) return true;  // the peer takes no more; that alone is no loss
  bool sent = link.take_control(message);
  if (!sent && completions_.empty()) {  // the peer may have made room since the last progress
    advance();
    sent = link.is_departed() || link.take_control(message);
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

void Endpoint::report_lost(uint32_t peer, const std::string& reason) {
  log(TUTTI_LOG_WARN, "rank {} is lost: {}", peer, reason);
  completions_.peer_failed(peer, says("rank {} is lost: {}", peer, reason));
}

uint32_t Endpoint::progress(std::span<tutti_completion> completions) {
  const auto announces = [this](uint32_t peer) {
    if (peers_[peer].error) return false;  // given up meanwhile: the core knows
    peers_[peer].link->told();
    return true;
  };
  completions_.forget_batch();
  const uint32_t n = completions_.hand_over(completions, 0, announces);
  if (!completions_.empty()) return n;  // nothing is taken in that could not be handed over: that bounds the queue
  advance();
  return completions_.hand_over(completions, n, announces);
}

// One round of everything; whether anything came.
bool Endpoint::advance() {
  bool any = false;
  if (!closing_) pairs_.flush();  // close_endpoint sends none
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
  if (now < next_heartbeat_ || closing_) return;
  next_heartbeat_ = now + kHeartbeatPeriod;
  for (const Peer& peer : peers_)
    if (peer.link) peer.link->heartbeat();
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
    case Work::kMarker:
      if (Path* path = paths_[wc.wr_id >> 32 & 0xffffff]) path->marker_flushed();
      return;
  }
}

void Endpoint::on_receive(Rail& rail, const ibv_wc& wc) {
  Path* path = rail.path_of(wc.qp_num);
  if (!path || !path->link) return;
  if (wc.status != IBV_WC_SUCCESS) return path_failed(*path, in_words(wc.status));
  // The peer was told that this frame did not arrive: it comes again over another path.
  if (path->is_settling()) return;
  path->take();
  ++rail.frames_received;
  Link& link = *path->link;
  if (!link.is_up()) return;
  if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) {
    rail.bytes_received += wc.byte_len;
    link.on_written(ntohl(wc.imm_data), wc.byte_len);
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

// Failed paths are stopped and drained outside of the handling of any completion (settle_failures).
void Endpoint::path_failed(Path& path, const std::string& reason) {
  if (!path.is_up() || path.failing) return;
  path.failing = true;
  path.failure = reason;
  if (path.rail().is_down()) path.failure += " (this rank's own port is down)";
  failed_.push_back(path.id());
}

void Endpoint::settle_failures() {
  std::vector<uint32_t> failed;
  failed.swap(failed_);
  flush();
  for (const uint32_t id : failed) {
    Path* path = paths_[id];
    if (!path || path->state() == Path::State::kDead) continue;  // its link has ended
    Link& link = *path->link;
    if (path->is_up()) link.on_path_failed(*path);
    if (!link.is_up()) continue;
    take_events(path->rail().device().context.get());
    std::string why;
    switch (path->drain(&why)) {
      case Path::Drain::kWaiting:
        failed_.push_back(id);
        break;
      case Path::Drain::kStuck:
        link.on_path_stuck(*path, why);
        break;
      case Path::Drain::kDone:
        if (!path->told_last_receive())
          log(TUTTI_LOG_INFO,
              "rail {}: its adapter did not raise IBV_EVENT_QP_LAST_WQE_REACHED within {} ms: what has arrived by now "
              "is taken for all that did",
              path->rail().port().name(), kLastReceiveLimit.count());
        while (poll(path->rail())) {
        }
        if (link.is_up()) link.on_path_drained(*path);
        break;
    }
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
  // Nothing wakes the sleeper when a failed path is drained, or when there is room for a pair message.
  sleeper_.wake_after(failed_.empty() && pairs_.is_empty() ? kHeartbeatPeriod : kShortSleep);
  return true;
}

void Endpoint::disarm() noexcept {
  for (auto& rail : rails_) rail->take_events();
  sleeper_.wake_after({});
}

// The end
// --------------------------------------------------------------------------------------------------------------

void Endpoint::fail_peer(uint32_t index) {
  Peer& peer = peer_of(index);
  peer.error = error(TUTTI_PEER_FAILED, "rank {} was given up", index);
  peer.offered.clear();
  if (peer.link) peer.link->end(TUTTI_PEER_FAILED, "this rank has given it up");
}

void Endpoint::abort() {
  if (aborted_) return;
  aborted_ = true;
  for (Peer& peer : peers_) {
    peer.offered.clear();
    if (peer.link) peer.link->end(TUTTI_ABORTED, "the endpoint was aborted");
  }
}

Endpoint::~Endpoint() {
  closing_ = true;
  try {
    if (!aborted_) leave_in_order();
    report_rails();
  } catch (const std::exception& e) {
    log(TUTTI_LOG_ERROR, "while closing: {}", e.what());
  }
}

// What was completed must still arrive; then the peers hear that nothing follows. Whoever does not take it is not
// waited for longer than kLinger.
void Endpoint::leave_in_order() {
  const auto deadline = Clock::now() + kLinger;
  const auto wait = [&] {
    const auto drained = [](const Peer& peer) { return !peer.link || peer.link->is_drained(); };
    while (!std::all_of(peers_.begin(), peers_.end(), drained) && Clock::now() < deadline) {
      completions_.clear();
      if (!advance()) ::poll(nullptr, 0, 0);
    }
  };
  for (const Peer& peer : peers_)
    if (peer.link) peer.link->ask_for_acknowledgement();
  flush();
  wait();
  for (const Peer& peer : peers_)
    if (peer.link) peer.link->say_goodbye();
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
    log(TUTTI_LOG_INFO, "rail {}: sent {} bytes in {} frames, received {} bytes in {} frames", rail->port().name(),
        rail->bytes_sent, rail->frames_sent, rail->bytes_received, rail->frames_received);
}

}  // namespace tutti::ib
