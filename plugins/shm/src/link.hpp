// SPDX-License-Identifier: Apache-2.0
//
// A link of shm: that of the SDK (tutti/sdk/local/link.hpp), and regions sent by reference. What is said of regions
// goes over the link's line.
//
// A region with a file is mapped by the peer. All other memory the peer can read out of this process, if the kernel
// allows it. That is found out once: each end tells the other where a word of its own lies, and the other says so when
// it could read it.
#pragma once

#include <tutti/sdk/local/link.hpp>
#include <vector>

#include "peer_memory.hpp"
#include "region.hpp"

namespace tutti::shm {

// The payload of a kReference descriptor.
struct RegionReference {
  static constexpr uint32_t in_process = UINT32_MAX;  // instead of an id: `offset` is an address
  uint32_t id;
  uint32_t generation;
  uint64_t offset;
};
static_assert(sizeof(RegionReference) <= sdk::local::kInlineBytes);

struct RegionOffer {  // + the region's memory file
  static constexpr uint32_t number = sdk::local::kFirstOwnPacket;
  uint32_t kind = number;
  uint32_t id = 0;
  uint32_t generation = 0;
  uint32_t reserved = 0;
  uint64_t offset = 0;  // in the file
  uint64_t bytes = 0;
};
struct RegionGone {
  static constexpr uint32_t number = RegionOffer::number + 1;
  uint32_t kind = number;
  uint32_t id = 0;
  uint32_t generation = 0;
};

struct Probe {  // a word of the speaker's memory
  static constexpr uint32_t number = RegionGone::number + 1;
  uint32_t kind = number;
  uint32_t reserved = 0;
  uint64_t address = 0;
  uint64_t value = 0;
};
struct Readable {  // the listener's memory is, for the speaker
  static constexpr uint32_t number = Probe::number + 1;
  uint32_t kind = number;
};

class Link : public sdk::local::LinkBase<Link> {
 public:
  using Domain = shm::Domain;
  // The version counts changes of the packets above, of the segment's layout and of the way to a link.
  static constexpr sdk::PairFormat format{.transport = "shm", .magic = 0x4d48'5354, .version = 8};  // "TSHM"

  Link(Parts parts, Domain& domain);

  // view/1.
  tutti_status send_region(uint32_t lane, tutti_region* region, uint64_t offset, uint64_t bytes,
                           uint64_t& ticket) noexcept;

  // For LinkBase.
  bool handle(sdk::Packet& packet);
  sdk::local::Reference find(const uint8_t* payload, uint64_t bytes, uint32_t lane, void* room) noexcept;
  // Tells the peer what it was not told yet: of its memory, and of deregistered regions.
  void flush() noexcept;
  bool waits_for_line() const { return line_full_; }

 private:
  bool offer_region(const Region& region) noexcept;
  void try_to_read(const Probe& probe);
  // The reference to a part of a region; TUTTI_OK: the peer can follow it.
  tutti_status refer(const Region& region, uint64_t offset, uint64_t bytes, RegionReference& reference) noexcept;
  template <typename T>
  bool tell(const T& packet) noexcept;

  Domain& domain_;
  bool line_full_ = false;         // an offer waits for the peer to read
  std::vector<uint32_t> offered_;  // by region id: the generation that the peer knows, 0 none
  uint64_t removals_seen_;
  ImportedRegions imports_;
  PeerMemory peer_memory_;
  const uint64_t probed_word_;
  bool probe_waits_;             // to be sent
  bool readable_waits_ = false;  // likewise
  bool peer_reads_ = false;      // this process's memory
};

}  // namespace tutti::shm
