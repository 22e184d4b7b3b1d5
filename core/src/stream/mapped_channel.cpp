// SPDX-License-Identifier: Apache-2.0
#include "stream/mapped_channel.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <atomic>
#include <utility>
#include <vector>

#include "plugins/host.hpp"

namespace tutti::core {

std::unique_ptr<MappedChannel> MappedChannel::share(PeerMemory& memory, const DeviceMemory& device, Link* link,
                                                    uint32_t self, uint32_t lane) {
  const tutti_device* tables = device.tables.memory;
  const uint64_t slots_tag = PeerMemory::tag(PeerMemory::slots, self, lane);
  const uint64_t flags_tag = PeerMemory::tag(PeerMemory::channel_flags, self, lane);
  void* made = nullptr;
  if (const tutti_status status = tables->allocate(tables->self, device.device, slots * slot_bytes, &made);
      status < 0) {
    const std::string why = fmt::format("device {}: {}", tables->name, take_plugin_error());
    memory.decline(link->peer, slots_tag, why);
    throw Failure(status, why);
  }
  std::vector<PeerRegion> shared;
  try {
    shared.push_back(memory.share(link->peer, slots_tag, made, slots * slot_bytes));
    shared.push_back(memory.share(link->peer, flags_tag, nullptr, flags_bytes));
    return std::make_unique<MappedChannel>(memory, link, true, shared[0], shared[1]);
  } catch (...) {
    memory.take_back(std::move(shared), static_cast<std::byte*>(made));
    throw;
  }
}

MappedChannel::MappedChannel(PeerMemory& memory, Link* link, bool outgoing, const PeerRegion& ring,
                             const PeerRegion& flags)
    : StreamChannel(link, outgoing), memory_(memory), slots_(ring), flags_(flags) {
  place(slots_.device, flags_.host, flags_.device);
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

void MappedChannel::announce(uint64_t bytes, uint64_t) {
  ++announced_;
  bytes_ += bytes;
}

// The streams need nobody: this only sees that they move.
bool MappedChannel::advance() {
  bool moved = false;
  for (uint64_t k = 0; k < 2 * slots; ++k) {
    const uint32_t now = std::atomic_ref(*host_flag(k / 2, k % 2)).load(std::memory_order_relaxed);
    moved |= now != seen_[k];
    seen_[k] = now;
  }
  return moved;
}

}  // namespace tutti::core
