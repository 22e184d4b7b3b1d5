// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_channel.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <set>
#include <utility>

#include "base/failure.hpp"

namespace tutti::core {

void StreamChannel::init(std::byte* data, std::byte* host_flags, std::byte* device_flags, uint64_t places) {
  data_ = data;
  places_ = places;
  host_flags_ = host_flags;
  device_flags_ = device_flags;
}

bool StreamChannel::may_go_on(uint64_t k) const {
  return std::atomic_ref(*host_flag(k, !outgoing_)).load(std::memory_order_acquire) == 1;
}

bool StreamChannel::moved() {
  uint64_t now = 0;
  for (uint64_t k = 0; k < 2 * places_; ++k)
    now = now * 31 + std::atomic_ref(*host_flag(k / 2, k % 2)).load(std::memory_order_relaxed);
  return std::exchange(seen_, now) != now;
}

void StreamChannel::release_flags() {
  for (uint64_t k = 0; k < places_; ++k) std::atomic_ref(*host_flag(k, !outgoing_)).store(1, std::memory_order_release);
}

namespace {

const char* carrier_of(const char* transport, bool on_device) {
  if (!on_device) return transport;
  static std::mutex mutex;
  static auto& names = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  return names.insert(fmt::format("{}(device)", transport)).first->c_str();
}

}  // namespace

StagedChannel::StagedChannel(const DeviceTables& tables, uint32_t device, Link* link, uint32_t transport_lane,
                             bool outgoing, bool in_host)
    : StreamChannel(link->peer, outgoing),
      link_(link),
      flags_(tables, flags_bytes(slots)),
      slots_(tables, device, *link->port, slots * slot_bytes, in_host),
      carrier_(carrier_of(link->port->api->name, slots_.on_device())),
      lane_(transport_lane) {
  init(slots_.seen(), flags_.host(), flags_.device());
  for (uint64_t k = 0; k < slots; ++k) *host_flag(k, false) = 1;
}

void StagedChannel::announce(uint64_t bytes, uint64_t operation, std::optional<uint64_t>) {
  if (announced_ - finished_ == fragments_.size()) {
    std::vector<StagedFragment> more(std::max<size_t>(16, fragments_.size() * 2));
    for (uint64_t k = finished_; k != announced_; ++k) more[k & (more.size() - 1)] = fragment(k);
    fragments_ = std::move(more);
  }
  fragments_[announced_++ & (fragments_.size() - 1)] = {bytes, operation};
}

// Fragment k may be sent or received from now on.
bool StagedChannel::start(uint64_t k) {
  const std::atomic_ref flag(*host_flag(k, outgoing_));
  if (flag.load(std::memory_order_acquire) != 1) return false;
  flag.store(0, std::memory_order_relaxed);
  const uint64_t bytes = fragment(k).bytes;
  if (outgoing_)
    out_[k % slots].open(link_, lane_, bytes);
  else
    in_[k % slots].open(link_, lane_, bytes);
  ++started_;
  return true;
}

void StagedChannel::move(uint64_t k) {
  const RegisteredSpan memory = slots_.span(offset_of(k));
  std::byte* slot = slots_.posted() + offset_of(k);
  if (outgoing_)
    out_[k % slots].advance(slot, out_[k % slots].bytes, memory);
  else
    in_[k % slots].advance(slot, false, memory.region);
}

// May the stream have fragment k's slot? What was received is visible to it.
bool StagedChannel::ended(uint64_t k) {
  if (outgoing_) return out_[k % slots].done();
  const Inflow& in = in_[k % slots];
  if (!in.done()) return false;
  const Port& port = *link_->port;
  if (!slots_.on_device() || !in.bytes || !(port.caps.flags & TUTTI_TRANSPORT_NEEDS_FLUSH)) return true;
  const tutti_status status =
      port.api->flush(link_->handle, slots_.span(0).region, slots_.posted() + offset_of(k), in.bytes);
  if (status < 0) throw Failure(status, fmt::format("{}: flush: {}", where(), take_plugin_error()));
  return status == TUTTI_OK;
}

bool StagedChannel::advance() {
  if (!busy() || !connect(*link_)) return false;
  bool moved = false;
  while (started_ != announced_ && started_ - finished_ < slots && start(started_)) moved = true;
  bool may_follow = true;  // fragments of a way keep their order
  for (uint64_t k = finished_; k != started_ && may_follow; ++k) {
    Flow& f = flow(k);
    const uint64_t before = f.handed + f.completed;
    move(k);
    moved |= f.handed + f.completed != before;
    if (f.status < 0)
      throw Failure(f.status,
                    fmt::format("{}: {}{}", where(), tutti_status_text(f.status),
                                f.status == TUTTI_MISMATCH
                                    ? ": the message's size differs from what this rank expects: do all ranks "
                                      "call the same collective with the same count and type?"
                                    : ""));
    may_follow = outgoing_
                     ? f.all_handed()
                     : (link_->view ? f.all_arrived() : (f.bytes ? f.handed == f.bytes : f.pending || f.signalled));
  }
  while (finished_ != started_ && ended(finished_)) {
    std::atomic_ref(*host_flag(finished_, !outgoing_)).store(1, std::memory_order_release);
    ++finished_;
    moved = true;
  }
  return moved;
}

std::string StagedChannel::where() const {
  if (!busy()) return {};
  const bool waits_for_stream = started_ == finished_;
  return fmt::format("at fragment {} {} rank {} over {} ({})", finished_, outgoing_ ? "to" : "from", peer_,
                     link_->port->api->name,
                     waits_for_stream ? "the stream has not come to it" : "on its way between the hosts");
}

}  // namespace tutti::core
