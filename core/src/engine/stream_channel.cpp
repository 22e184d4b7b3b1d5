// SPDX-License-Identifier: Apache-2.0
#include "engine/stream_channel.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "bootstrap/failure.hpp"

namespace tutti::core {
namespace {

constexpr uint32_t empty = 0, full = 1;
constexpr uint64_t page = 4096;

}  // namespace

MappedMemory::MappedMemory(const DeviceTables& device, uint64_t bytes) : tables_(device) {
  bytes = (bytes + page - 1) / page * page;
  host_ = static_cast<std::byte*>(std::aligned_alloc(page, bytes));
  if (!host_) throw std::bad_alloc();
  std::memset(host_, 0, bytes);
  void* seen = nullptr;
  if (const tutti_status status = tables_.memory->map_host(tables_.memory->self, host_, bytes, &seen); status < 0) {
    std::free(host_);
    throw Failure(status, fmt::format("device {}: host memory cannot be made visible to it: {}", tables_.memory->name,
                                      take_plugin_error()));
  }
  device_ = static_cast<std::byte*>(seen);
}

MappedMemory::~MappedMemory() {
  tables_.memory->unmap_host(tables_.memory->self, host_);
  std::free(host_);
}

StreamChannel::StreamChannel(const DeviceTables& device, Link* link, uint32_t transport_lane, bool outgoing)
    : memory_(device, slots * (slot_bytes + 64)), link_(link), lane_(transport_lane), outgoing_(outgoing) {}

void StreamChannel::announce(uint64_t bytes) {
  sizes_.push_back(bytes);
  ++announced_;
}

// Fragment k may be sent or received from now on.
bool StreamChannel::start(uint64_t k) {
  const uint32_t value = std::atomic_ref(*host_word(k)).load(std::memory_order_acquire);
  if (value != (outgoing_ ? full : empty)) return false;
  const uint64_t bytes = sizes_[k - finished_];
  if (outgoing_)
    out_[k % slots].open(link_, lane_, bytes);
  else
    in_[k % slots].open(link_, lane_, bytes);
  ++started_;
  return true;
}

bool StreamChannel::advance(const std::function<bool(Link&)>& connect) {
  if (!busy() || !connect(*link_)) return false;
  bool moved = false;
  while (started_ != announced_ && started_ - finished_ < slots && start(started_)) moved = true;
  bool may_follow = true;  // fragments of a way keep their order
  for (uint64_t k = finished_; k != started_ && may_follow; ++k) {
    Flow& f = flow(k);
    const uint64_t before = f.handed + f.completed;
    if (outgoing_)
      out_[k % slots].advance(host_slot(k), f.bytes, {});
    else
      in_[k % slots].advance(host_slot(k), false);
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
  while (finished_ != started_ && (outgoing_ ? out_[finished_ % slots].done() : in_[finished_ % slots].done())) {
    std::atomic_ref(*host_word(finished_)).store(outgoing_ ? empty : full, std::memory_order_release);
    sizes_.pop_front();
    ++finished_;
    moved = true;
  }
  return moved;
}

void StreamChannel::let_go() {
  for (uint64_t k = 0; k < slots; ++k)
    std::atomic_ref(*host_word(k)).store(outgoing_ ? empty : full, std::memory_order_release);
}

std::string StreamChannel::where() const {
  const bool waits_for_stream = started_ == finished_;
  return fmt::format("fragment {} {} rank {} over {} ({})", finished_, outgoing_ ? "to" : "from", link_->peer,
                     link_->port->api->name,
                     waits_for_stream ? "the stream has not come to it" : "on its way between the hosts");
}

}  // namespace tutti::core
