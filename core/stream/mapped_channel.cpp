// SPDX-License-Identifier: Apache-2.0
#include "stream/mapped_channel.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <atomic>
#include <utility>
#include <vector>


namespace tutti::core {

std::unique_ptr<MappedChannel> MappedChannel::share(PeerMemory& memory, const DeviceMemory& device, uint32_t peer,
                                                    uint32_t self, uint32_t lane) {
  const tutti_device* tables = device.tables.memory;
  const uint64_t slots_tag = PeerMemory::tag(PeerMemory::slots, self, lane);
  const uint64_t flags_tag = PeerMemory::tag(PeerMemory::channel_flags, self, lane);
  void* made = nullptr;
  if (const tutti_status status = tables->allocate(tables->self, device.device, slots * slot_bytes, &made);
      status < 0) {
    const std::string why = fmt::format("device {}: {}", tables->name, take_plugin_error());
    memory.decline(peer, slots_tag, why);
    throw Failure(status, why);
  }
  std::vector<PeerRegion> shared;
  try {
    shared.push_back(memory.share(peer, slots_tag, made, slots * slot_bytes));
    shared.push_back(memory.share(peer, flags_tag, nullptr, shared_bytes));
    return std::make_unique<MappedChannel>(memory, true, shared[0], shared[1]);
  } catch (...) {
    memory.take_back(std::move(shared), static_cast<std::byte*>(made));
    throw;
  }
}

MappedChannel::MappedChannel(PeerMemory& memory, bool outgoing, const PeerRegion& ring, const PeerRegion& flags)
    : StreamChannel(ring.peer, outgoing),
      memory_(memory),
      slots_(ring),
      flags_(flags),
      sent_(reinterpret_cast<uint64_t*>(flags_.host + flags_bytes(slots))) {
  init(slots_.device, flags_.host, flags_.device);
  for (uint64_t k = 0; outgoing && k < slots; ++k) *host_flag(k, false) = 1;
}

MappedChannel::~MappedChannel() {
  if (outgoing_) {
    memory_.take_back({slots_, flags_}, slots_.device);
  } else {
    memory_.close(slots_);
    memory_.close(flags_);
  }
}

void MappedChannel::announce(uint64_t bytes, uint64_t, std::optional<uint64_t> sequence) {
  ++announced_;
  bytes_ += bytes;
  if (!sequence) return;  // both ends of a transfer have told each other its size
  digest_ = (digest_ ^ (*sequence << 24 ^ bytes)) * 0x9e3779b97f4a7c15u;
  digest_ ^= digest_ >> 29;
  uint64_t* const log = outgoing_ ? sent_ : expected_.data();
  const auto number = static_cast<uint32_t>(++last_);
  std::atomic_ref(log[last_ % logged]).store((digest_ & ~uint64_t{UINT32_MAX}) | number, std::memory_order_release);
}

// A fragment that is not in the log any more needs no comparison: each digest is of all before it, too.
void MappedChannel::compare() {
  compared_ = std::max(compared_, last_ - std::min(last_, logged));
  while (compared_ != last_) {
    const uint64_t next = compared_ + 1;
    const uint64_t sent = std::atomic_ref(sent_[next % logged]).load(std::memory_order_acquire);
    const auto ahead = static_cast<int32_t>(static_cast<uint32_t>(sent) - static_cast<uint32_t>(next));
    if (ahead < 0) return;
    if (ahead == 0 && sent != expected_[next % logged])
      throw Failure(
          TUTTI_MISMATCH,
          fmt::format("rank {} sends another message through mapped memory than this rank expects: do all "
                      "ranks call the same collectives with the same counts and types? Checked mode (TUTTI_CHECK=1) "
                      "names the call and both counts",
                      peer_));
    compared_ = next;
  }
}

// The streams need no host: this only sees that they move, and what they read.
bool MappedChannel::advance() {
  if (!outgoing_) compare();
  return moved();
}

}  // namespace tutti::core
