// SPDX-License-Identifier: Apache-2.0
//
// Packets of the control plane, how they travel, and how ranks describe themselves. Nothing here does any I/O.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire.hpp"
#include "bootstrap/control_plane.hpp"
#include "net/socket_address.hpp"

namespace tutti::core {

enum class PacketKind : uint32_t {
  loss = 1,     // bytes: a Loss
  left = 2,     // the origin leaves in order
  ask = 3,      // a roll call
  answer = 4,   // bytes: a RollCallAnswer
  part = 5,     // of an all_gather
  message = 6,  // a pair message
  taken = 7,    // the number of the last pair message that was taken
  branch = 8,   // a packet of a branch, in place of a pair message (trunk.hpp)
  membership = static_cast<uint32_t>(NoticeKind::membership),
  calls = static_cast<uint32_t>(NoticeKind::calls)
};

enum class Route : uint32_t {
  flood = 0,      // to all ranks: each passes it on to its other neighbours; a pair message counts for its target only
  back = 1,       // the way by which the target's roll call came
  neighbour = 2,  // over the link to the target
  up = 3,         // round the ring of ranks to the target, over hops that do not overshoot
  down = 4        // the other way round
};

struct Packet {
  PacketKind kind = PacketKind::loss;
  Route route = Route::flood;
  uint32_t origin = 0, target = 0;
  uint64_t number = 0;     // of the roll call, all_gather or pair message; left: of the last all_gather entered
  std::string_view bytes;  // lie in what was decoded
  uint64_t serial = 0;     // flood: of the origin's floods, from 1; the mesh counts them

  static void fields(auto& wire, auto& p) { wire(p.kind, p.route, p.origin, p.target, p.number, p.serial, p.bytes); }
};
// Throws Failure{TUTTI_MISMATCH} for bytes that no rank of so many sends.
Packet decode_packet(std::string_view payload, uint32_t nranks);
// The longest among so many ranks.
constexpr uint64_t max_packet(uint32_t nranks) {
  return std::max<uint64_t>(kMaxNotice + 64, uint64_t{nranks} * (kMaxContribution + 4) + 64);
}

// The distance from `from` to `to` on that route, up or down, in ranks.
uint32_t ring_distance(uint32_t from, uint32_t to, uint32_t nranks, Route route);
// The ranks to which `rank` may pass a packet for `target`, the best first: those a power of two further that do not
// overshoot. Each is nearer to the target, so a packet never goes in circles, and with all links up it arrives after at
// most log2(nranks) hops.
std::vector<uint32_t> ring_hops(uint32_t rank, uint32_t target, uint32_t nranks, Route route);

// Does the packet's route lead over the link from `peer` to `rank`?
bool leads_here(const Packet& packet, uint32_t peer, uint32_t rank, uint32_t nranks);

// The addresses of a rank, for ranks that connect to it.
struct MeshAddress {
  std::vector<SocketAddress> addresses;
  std::string who;    // "process 12 on host a"
  std::string token;  // rank 0's is the mesh's

  static void fields(auto& wire, auto& address) { wire(address.who, address.token, address.addresses); }
};
inline constexpr size_t kMaxMeshAddresses = 16;
// Throws Failure{TUTTI_MISMATCH} for bytes that encode never makes.
MeshAddress decode_address(std::string_view bytes);

// The description of a rank for all others, exchanged as soon as the mesh is complete.
struct MeshIdentity {
  std::string who;
  std::string space;  // where process ids mean the same; "": unknown
  uint32_t process = 0;

  static void fields(auto& wire, auto& identity) { wire(identity.who, identity.space, identity.process); }
};

}  // namespace tutti::core
