// SPDX-License-Identifier: Apache-2.0
#include "engine/stream_channel.hpp"

#include <fmt/format.h>
#include <sys/mman.h>
#include <tutti/tutti.h>

#include <atomic>
#include <cerrno>
#include <system_error>

#include "bootstrap/failure.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t page = 4096;

}  // namespace

MappedMemory::MappedMemory(const DeviceTables& device, uint64_t bytes, int file)
    : tables_(device), bytes_((bytes + page - 1) / page * page) {
  void* made =
      mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED, file, 0);
  if (made == MAP_FAILED)
    throw Failure(TUTTI_NO_RESOURCES,
                  fmt::format("no host memory of {} bytes: {}", bytes_, std::generic_category().message(errno)));
  host_ = static_cast<std::byte*>(made);
  void* seen = nullptr;
  if (const tutti_status status = tables_.memory->map_host(tables_.memory->self, host_, bytes_, &seen); status < 0) {
    munmap(host_, bytes_);
    throw Failure(status, fmt::format("device {}: host memory cannot be made visible to it: {}", tables_.memory->name,
                                      take_plugin_error()));
  }
  device_ = static_cast<std::byte*>(seen);
}

MappedMemory::~MappedMemory() {
  tables_.memory->unmap_host(tables_.memory->self, host_);
  munmap(host_, bytes_);
}

void StreamChannel::place(std::byte* data, const MappedMemory& words, uint64_t offset) {
  data_ = data;
  host_words_ = words.host() + offset;
  device_words_ = words.device() + offset;
}

void StreamChannel::let_go() {
  for (uint64_t k = 0; k < slots; ++k) std::atomic_ref(*host_word(k, !outgoing_)).store(1, std::memory_order_release);
}

StagedChannel::StagedChannel(const DeviceTables& device, Link* link, uint32_t transport_lane, bool outgoing)
    : StreamChannel(link, outgoing), memory_(device, slots * slot_bytes + words_bytes), lane_(transport_lane) {
  place(memory_.device(), memory_, slots * slot_bytes);
  for (uint64_t k = 0; k < slots; ++k) *host_word(k, false) = 1;
}

void StagedChannel::announce(uint64_t bytes) {
  sizes_.push_back(bytes);
  ++announced_;
}

// Fragment k may be sent or received from now on.
bool StagedChannel::start(uint64_t k) {
  const std::atomic_ref word(*host_word(k, outgoing_));
  if (word.load(std::memory_order_acquire) != 1) return false;
  word.store(0, std::memory_order_relaxed);
  const uint64_t bytes = sizes_[k - finished_];
  if (outgoing_)
    out_[k % slots].open(link_, lane_, bytes);
  else
    in_[k % slots].open(link_, lane_, bytes);
  ++started_;
  return true;
}

bool StagedChannel::advance(const std::function<bool(Link&)>& connect) {
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
    std::atomic_ref(*host_word(finished_, !outgoing_)).store(1, std::memory_order_release);
    sizes_.pop_front();
    ++finished_;
    moved = true;
  }
  return moved;
}

std::string StagedChannel::where() const {
  if (!busy()) return {};
  const bool waits_for_stream = started_ == finished_;
  return fmt::format("at fragment {} {} rank {} over {} ({})", finished_, outgoing_ ? "to" : "from", link_->peer,
                     link_->port->api->name,
                     waits_for_stream ? "the stream has not come to it" : "on its way between the hosts");
}

}  // namespace tutti::core
