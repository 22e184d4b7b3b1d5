// SPDX-License-Identifier: Apache-2.0
#include "stream/peer_memory.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <new>
#include <utility>

#include "base/graveyard.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

tutti_mapped_device as_mapped(const DeviceMemory& device) {
  return {sizeof(tutti_mapped_device), caps_of(device.tables).memory_kind, device.device, 0};
}

PeerRegion region_at(const tutti_mapped_place& place, uint32_t peer) {
  PeerRegion region;
  region.device = static_cast<std::byte*>(place.device);
  region.host = static_cast<std::byte*>(place.host);
  region.bytes = place.bytes;
  region.peer = peer;
  return region;
}

}  // namespace

PeerMemory::~PeerMemory() {
  for (std::unique_ptr<Leaving>& one : leaving_) {
    if (!one->lost) try {
        log(TUTTI_LOG_WARN, device_.tables.memory->name,
            fmt::format("rank {} has not unmapped this process's memory, which is kept until the process ends",
                        one->regions.empty() ? 0 : one->regions.front().peer));
      } catch (const std::bad_alloc&) {
      }
    keep_for_ever(std::move(one), "a peer has it mapped");
  }
}

PeerRegion PeerMemory::share(uint32_t peer, uint64_t tag, void* address, uint64_t bytes) {
  const tutti_mapped_device whose = as_mapped(device_);
  const tutti_share_config config{sizeof config, 0, tag, address, bytes, &whose};
  tutti_mapped_place place{sizeof place, 0, nullptr, nullptr, 0};
  tutti_share* share = nullptr;
  if (const tutti_status status = of(peer).share((*links_)[peer].handle, &config, &share, &place); status < 0) {
    const std::string why = take_plugin_error();
    decline(peer, tag, why);
    throw Failure(status, why);
  }
  PeerRegion region = region_at(place, peer);
  region.share = share;
  return region;
}

bool PeerMemory::has_mapped(const PeerRegion& shared) const {
  const tutti_status status = of(shared.peer).share_state(shared.share);
  if (status < 0) throw Failure(status, take_plugin_error());
  return status == TUTTI_OK;
}

std::optional<PeerRegion> PeerMemory::open(uint32_t peer, uint64_t tag, uint64_t bytes) {
  const tutti_mapped_device whose = as_mapped(device_);
  tutti_mapped_place place{sizeof place, 0, nullptr, nullptr, 0};
  tutti_mapping* mapping = nullptr;
  const tutti_status status = of(peer).open_mapping((*links_)[peer].handle, tag, &whose, &mapping, &place);
  if (status < 0) throw Failure(status, take_plugin_error());
  if (status == TUTTI_AGAIN) return std::nullopt;
  PeerRegion region = region_at(place, peer);
  region.mapping = mapping;
  if (region.bytes >= bytes) return region;
  const std::string why = fmt::format("rank {} offers {} bytes, expected {}", peer, region.bytes, bytes);
  close(region);
  decline(peer, tag, why);
  throw Failure(TUTTI_MISMATCH, why);
}

void PeerMemory::decline(uint32_t peer, uint64_t tag, const std::string& why) {
  if (of(peer).decline((*links_)[peer].handle, tag, declined_status, why.c_str()) < 0)
    take_plugin_error();  // the link has ended: nobody waits at its other end
}

void PeerMemory::close(PeerRegion& mapped) {
  if (!mapped.mapping) return;
  if (of(mapped.peer).close_mapping(mapped.mapping) < 0)
    log(TUTTI_LOG_WARN, device_.tables.memory->name,
        fmt::format("memory of rank {} cannot be unmapped: {}", mapped.peer, take_plugin_error()));
  mapped = {};
}

void PeerMemory::take_back(std::vector<PeerRegion> regions, std::byte* memory) {
  std::erase_if(regions, [](const PeerRegion& region) { return !region; });
  if (!regions.empty() || memory) leaving_.push_back(std::make_unique<Leaving>(Leaving{std::move(regions), memory}));
}

// True: the region is gone.
bool PeerMemory::withdraw(Leaving& leaving, PeerRegion& region) {
  if (region.mapping) return close(region), true;
  const tutti_status status = of(region.peer).withdraw(region.share);
  if (status == TUTTI_AGAIN) return false;
  if (status == TUTTI_OK) return true;
  log(TUTTI_LOG_WARN, device_.tables.memory->name,
      fmt::format("memory that was shared with rank {} is kept until the process ends: {}", region.peer,
                  take_plugin_error()));
  return leaving.lost = true;
}

bool PeerMemory::release_pending() {
  std::erase_if(leaving_, [this](std::unique_ptr<Leaving>& one) {
    std::erase_if(one->regions, [&](PeerRegion& region) { return withdraw(*one, region); });
    if (!one->regions.empty()) return false;
    if (one->lost)
      keep_for_ever(std::move(one), "a lost peer may still address it");
    else if (one->memory)
      device_.tables.memory->release(device_.tables.memory->self, one->memory);
    return true;
  });
  return leaving_.empty();
}

}  // namespace tutti::core
