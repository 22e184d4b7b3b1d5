// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <arpa/inet.h>
#include <poll.h>

#include <algorithm>

namespace tutti::ib {
namespace {

constexpr uint32_t kBatch = 32;
// The clock is read once in this many polls.
constexpr uint32_t kClockPolls = 64;
// The sleep while a failed path drains or a pair message waits for room: no event reports either.
constexpr std::chrono::milliseconds kShortSleep{1};

}  // namespace

Endpoint::Endpoint(Domain& domain, const tutti_endpoint_config& config)
    : NetworkEndpoint("net-ib", config, kMaxLanes,
                      {domain.settings().fragment_bytes, domain.settings().eager_bytes, domain.settings().eager_bytes}),
      domain_(domain),
      exchange_(*this, config, kPairFormat, {kSettingNames.begin(), kSettingNames.end()},
                {[this](uint32_t peer) { return make_offer(peer); },
                 [this](uint32_t peer, const Offer& offer) { on_offer(peer, offer); },
                 [this](uint32_t peer) { drop(peer); }}),
      peers_(config.nranks) {
  try {
    for (uint32_t i = 0; i < domain.rails().size(); ++i) {
      rails_.push_back(std::make_unique<Rail>(domain, i, nranks(), static_cast<uint8_t>(config.traffic_class)));
      sleeper_.watch(rails_.back()->event_descriptor());
      const auto same = [&](const auto& rail) { return &rail->device() == &rails_.back()->device(); };
      if (std::find_if(rails_.begin(), rails_.end(), same) == rails_.end() - 1)
        sleeper_.watch(rails_.back()->async_descriptor());
    }
  } catch (const sdk::Error& why) {
    throw error(why.status(), "{}", why.what());
  }
  told_idle_.resize(rails_.size());
}

// ---- Transfers

void Endpoint::check_region(const tutti_transfer& t) const {
  if (!t.region) return;
  const Region& region = sdk::from_handle<Region>(t.region);
  if ((t.flags & TUTTI_TRANSFER_INLINE) && region.on_device)
    throw refusal(t, TUTTI_INVALID_ARGUMENT, "INLINE is for host memory");
  if (!region.holds(t.data, t.bytes)) throw refusal(t, TUTTI_INVALID_ARGUMENT, "its region does not hold its memory");
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

// ---- Progress

bool Endpoint::advance() {
  bool any = false;
  if (!closing_) exchange_.flush();  // none may be sent while closing
  for (auto& rail : rails_) any |= poll(*rail);
  if (!leaving_.empty()) {
    for (auto& rail : rails_)
      while (poll(*rail)) {
      }
    for (size_t i = 0; i < leaving_.size(); ++i) leaving_[i]->on_goodbye();
    leaving_.clear();
  }
  if (!failed_.empty()) settle_failures();
  if (++polls_ % kClockPolls == 0) look_at_rails();
  std::vector<Link*> links;
  links.swap(working_);
  for (Link* link : links) {
    link->in_working = false;
    link->advance();
    if (link->has_work()) wants_advance(*link);
  }
  flush();
  return any;
}

void Endpoint::look_at_rails() {
  const auto now = Clock::now();
  if (now < next_look_) return;
  next_look_ = now + kEventPeriod;
  for (auto& rail : rails_)
    if (rail->look_again())
      for (const Peer& peer : peers_)
        if (peer.link) peer.link->on_rail_changed(*rail);
  if (closing_ || now < next_heartbeat_) return;
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
  const auto work = static_cast<Work>(wc.wr_id >> 56);
  const auto index = static_cast<uint32_t>(wc.wr_id);
  if (work == Work::kReceive) {
    on_receive(rail, wc);
    return rail.give_back(index);
  }
  Path* path = paths_[wc.wr_id >> 32 & (kMaxPaths - 1)];
  if (!path || !path->link) return;
  if (work == Work::kMarker) return path->marker_flushed();
  if (work == Work::kHeartbeat) path->heartbeat_answered();
  if (wc.status != IBV_WC_SUCCESS) return path_failed(*path, completion_text(wc.status));
  if (work != Work::kSent || path->state() == Path::State::kDead) return;
  while (static_cast<int32_t>(path->acked() - index) <= 0) {
    const Flight flight = path->flight(path->acked());
    path->acknowledge_one();
    path->link->on_acked(flight);
  }
  if (path->link->has_work()) wants_advance(*path->link);
}

void Endpoint::on_receive(Rail& rail, const ibv_wc& wc) {
  Path* path = rail.path_of(wc.qp_num);
  if (!path || !path->link) return;
  if (wc.status != IBV_WC_SUCCESS) return path_failed(*path, completion_text(wc.status));
  // The peer knows this frame as lost: it comes again over another path.
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

// settle_failures stops and drains failed paths, outside of the handling of completions.
void Endpoint::path_failed(Path& path, const std::string& reason) {
  if (path.is_halted() || path.failing) return;
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
    if (!path || path->state() == Path::State::kDead) continue;  // the link has ended
    Link& link = *path->link;
    if (!path->is_halted()) link.on_path_failed(*path);
    if (!link.is_up()) continue;
    take_events(path->rail().device().context.get(), *path->rail().device().events);
    std::string why;
    switch (path->drain(&why)) {
      case Path::Drain::kWaiting:
        failed_.push_back(id);
        break;
      case Path::Drain::kStuck:
        link.on_path_stuck(*path, why);
        break;
      case Path::Drain::kDone:
        if (!path->told_last_receive() && !path->rail().is_lost())
          log(TUTTI_LOG_INFO,
              "rail {}: its adapter did not raise IBV_EVENT_QP_LAST_WQE_REACHED within {} ms: frames that have not "
              "arrived by now count as lost",
              path->rail().port().name(), kLastReceiveLimit.count());
        while (poll(path->rail())) {
        }
        if (link.is_up()) link.on_path_drained(*path);
        break;
    }
  }
}

// ---- Sleeping

bool Endpoint::arm() {
  if (!completions().empty()) return false;
  for (auto& rail : rails_) rail->arm();
  for (Link* link : working_) link->ask_all();
  const bool any = advance();
  if (any || !completions().empty()) return false;
  polls_ = kClockPolls - 1;  // looks at the clock and for events at once after the sleep
  next_look_ = {};
  sleeper_.wake_after(failed_.empty() && !exchange_.has_mail() ? kHeartbeatPeriod : kShortSleep);
  return true;
}

void Endpoint::disarm() noexcept {
  for (auto& rail : rails_) rail->take_events();
  sleeper_.wake_after({});
}

// ---- The end

Endpoint::~Endpoint() {
  closing_ = true;
  try {
    if (!is_aborted()) leave_in_order();
    for (const auto& rail : rails_)
      log(TUTTI_LOG_INFO, "rail {}: sent {} bytes in {} frames, received {} bytes in {} frames", rail->port().name(),
          rail->bytes_sent, rail->frames_sent, rail->bytes_received, rail->frames_received);
  } catch (const std::exception& e) {
    log(TUTTI_LOG_ERROR, "while closing: {}", e.what());
  }
}

// Completed messages must still arrive; then a goodbye follows. A peer that does not take them is waited for at most
// kLinger.
void Endpoint::leave_in_order() {
  const auto deadline = Clock::now() + kLinger;
  const auto wait = [&] {
    const auto drained = [](const Peer& peer) { return !peer.link || peer.link->is_drained(); };
    while (!std::all_of(peers_.begin(), peers_.end(), drained) && Clock::now() < deadline) {
      completions().clear();
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

}  // namespace tutti::ib
