// SPDX-License-Identifier: Apache-2.0
#include "packet.hpp"

#include <algorithm>
#include <bit>

#include "base/make_failure.hpp"

namespace tutti::core {
namespace {

bool fits(const Packet& packet) {
  const bool round = packet.route == Route::up || packet.route == Route::down;
  const bool to_other = packet.origin != packet.target;
  switch (packet.kind) {
    case PacketKind::loss:
    case PacketKind::left:
    case PacketKind::ask:
    case PacketKind::membership:
    case PacketKind::calls:
      return packet.route == Route::flood;
    case PacketKind::answer:
      return to_other && packet.route == Route::back;
    case PacketKind::part:
      return to_other && packet.route == Route::neighbour;
    case PacketKind::message:
      return to_other && (round || packet.route == Route::flood) && packet.bytes.size() <= kMaxPairMessage;
    case PacketKind::branch:
      return to_other && (round || packet.route == Route::flood);
    case PacketKind::taken:
      return to_other && (round || packet.route == Route::flood) && packet.bytes.empty();
  }
  return false;
}

}  // namespace

Packet decode_packet(std::string_view payload, uint32_t nranks) {
  const auto packet = decode<Packet>(payload, "control plane packet");
  if (packet.origin >= nranks || packet.target >= nranks || !fits(packet))
    throw make_failure(TUTTI_MISMATCH,
                       "an ill packet: {} bytes of kind {} on route {} from rank {} to rank {}, in a world of {}",
                       packet.bytes.size(), static_cast<uint32_t>(packet.kind), static_cast<uint32_t>(packet.route),
                       packet.origin, packet.target, nranks);
  return packet;
}

uint32_t ring_distance(uint32_t from, uint32_t to, uint32_t nranks, Route route) {
  if (route == Route::down) std::swap(from, to);
  return static_cast<uint32_t>((uint64_t{to} + nranks - from) % nranks);
}

std::vector<uint32_t> ring_hops(uint32_t rank, uint32_t target, uint32_t nranks, Route route) {
  std::vector<uint32_t> hops;
  for (uint64_t hop = std::bit_floor(ring_distance(rank, target, nranks, route)); hop > 0; hop /= 2)
    hops.push_back(static_cast<uint32_t>((rank + (route == Route::down ? nranks - hop : hop)) % nranks));
  return hops;
}

bool leads_here(const Packet& packet, uint32_t peer, uint32_t rank, uint32_t nranks) {
  if (packet.route == Route::neighbour) return packet.origin == peer && packet.target == rank;
  if (packet.route != Route::up && packet.route != Route::down) return true;
  const auto left = [&](uint32_t at) { return ring_distance(at, packet.target, nranks, packet.route); };
  return left(rank) < left(peer) && left(peer) <= left(packet.origin);
}

MeshAddress decode_address(std::string_view bytes) {
  const auto address = decode<MeshAddress>(bytes, "control plane address");
  if (address.addresses.size() > kMaxMeshAddresses)
    throw make_failure(TUTTI_MISMATCH, "{} control plane addresses", address.addresses.size());
  if (std::ranges::any_of(address.addresses, [](const SocketAddress& one) { return one.port() == 0; }))
    throw Failure(TUTTI_MISMATCH, "an ill control plane address");
  return address;
}

}  // namespace tutti::core
