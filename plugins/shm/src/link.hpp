// SPDX-License-Identifier: Apache-2.0
//
// A link of shm: that of the SDK (tutti/sdk/local/link.hpp), and regions sent by reference. What is said of regions
// goes over the link's socket.
#pragma once

#include <tutti/sdk/local/link.hpp>
#include <vector>

#include "region.hpp"

namespace tutti::shm {

// The payload of a kReference descriptor.
struct RegionReference {
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

class Link : public sdk::local::LinkBase<Link> {
 public:
  using Domain = shm::Domain;
  // The version counts changes of the packets above and of the segment's layout.
  static constexpr sdk::PairFormat format{.transport = "shm", .magic = 0x4d48'5354, .version = 3};  // "TSHM"

  Link(Parts parts, Domain& domain) : LinkBase(std::move(parts)), domain_(domain), removals_seen_(domain.removals()) {}

  // view/1.
  tutti_status send_region(uint32_t lane, tutti_region* region, uint64_t offset, uint64_t bytes,
                           uint64_t& ticket) noexcept;

  // For LinkBase.
  bool handle(sdk::Packet& packet);
  sdk::local::Reference find(const uint8_t* payload, uint64_t bytes) noexcept;
  // Tells the peer of deregistered regions.
  void flush() noexcept;
  bool waits_for_socket() const { return socket_full_; }

 private:
  bool offer_region(const Region& region) noexcept;

  Domain& domain_;
  bool socket_full_ = false;       // an offer waits for the peer to read its socket
  std::vector<uint32_t> offered_;  // by region id: the generation that the peer knows, 0 none
  uint64_t removals_seen_;
  ImportedRegions imports_;
};

}  // namespace tutti::shm
