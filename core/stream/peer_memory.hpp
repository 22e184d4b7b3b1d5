// SPDX-License-Identifier: Apache-2.0
//
// Memory of this rank that ranks of other processes map, and memory of theirs that this rank maps, over the transports
// that offer mapped/1. Channels and windows both have theirs from here.
//
// Both ends know the tag of a memory beforehand. Its owner shares it or declines; the peer opens it or declines. So
// neither waits for a rank that cannot.
//
// Threads: the owner serialises all calls. share(), open(), close() and release_pending() may wait for the device: they
// are made in its gate.
#pragma once

#include <tutti/plugin/mapped.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "base/failure.hpp"
#include "engine/fabric/devices.hpp"
#include "engine/fabric/link.hpp"

namespace tutti::core {

// One memory, as this rank has it.
struct PeerRegion {
  std::byte* device = nullptr;  // as streams address it
  std::byte* host = nullptr;    // as processors address it; nullptr: device memory
  uint64_t bytes = 0;
  uint32_t peer = 0;
  tutti_share* share = nullptr;      // this rank has shared it
  tutti_mapping* mapping = nullptr;  // the peer has
  explicit operator bool() const { return share || mapping; }
};

class PeerMemory {
 public:
  // A tag, the same on both ends. `number` is below 2^32.
  enum RegionKind : uint64_t { slots = 1, channel_flags = 2, window = 3, window_flags = 4 };
  static uint64_t tag(RegionKind kind, uint32_t owner, uint64_t number) {
    return uint64_t{kind} << 60 | uint64_t{owner} << 32 | number;
  }

  // `links`: Fabric::mapped_links().
  PeerMemory(const DeviceMemory& device, std::vector<Link>* links) : device_(device), links_(links) {}
  PeerMemory(const PeerMemory&) = delete;
  PeerMemory& operator=(const PeerMemory&) = delete;
  // Memory that peers still map is kept until the process ends.
  ~PeerMemory();

  // Is there a link to that peer over which memory is mapped? It goes where its transport is refused, for good.
  bool reaches(uint32_t peer) const { return peer < links_->size() && (*links_)[peer].port; }
  // Connects that link. False: not yet. Throws Failure, also where the link goes.
  bool connect(uint32_t peer) { return core::connect((*links_)[peer]); }

  // Shares memory of the device with a peer; nullptr: host memory, which is made here and zeroed. Where that fails it
  // tells the peer, and throws Failure.
  PeerRegion share(uint32_t peer, uint64_t tag, void* address, uint64_t bytes);
  // Has the peer mapped it? Throws Failure with the peer's reason where it cannot, or will not.
  bool has_mapped(const PeerRegion& shared) const;
  // Maps the peer's memory of that tag, which has to have so many bytes; nothing: the peer has not shared it yet.
  // Throws Failure: of status `declined_status` where the peer has declined; else it tells the peer.
  std::optional<PeerRegion> open(uint32_t peer, uint64_t tag, uint64_t bytes);
  // This rank neither shares nor maps memory of that tag.
  void decline(uint32_t peer, uint64_t tag, const std::string& why);
  static constexpr tutti_status declined_status = TUTTI_NOT_FOUND;
  // No command names the peer's memory any more.
  void close(PeerRegion& mapped);
  // No command names these regions any more. When no peer maps them, `memory` is released, which the device has
  // allocated and of which they are shares; nullptr: nothing is. Mappings are closed. release_pending() does all that.
  void take_back(std::vector<PeerRegion> regions, std::byte* memory);
  // Goes on with what was taken back. True: nothing is left.
  bool release_pending();
  bool all_released() const { return leaving_.empty(); }

 private:
  struct Leaving {
    std::vector<PeerRegion> regions;
    std::byte* memory = nullptr;
    bool lost = false;  // a lost peer may address it still
  };
  const tutti_mapped& of(uint32_t peer) const { return *(*links_)[peer].port->mapped; }
  bool withdraw(Leaving& leaving, PeerRegion& region);

  const DeviceMemory device_;
  std::vector<Link>* const links_;
  std::vector<std::unique_ptr<Leaving>> leaving_;
};

}  // namespace tutti::core
