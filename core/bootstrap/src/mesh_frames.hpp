// SPDX-License-Identifier: Apache-2.0
//
// The frames of a control mesh's connections: encoding and decoding. Nothing here does any I/O.
#pragma once
#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/control_plane.hpp"
#include "bootstrap/socket_address.hpp"
#include "wire.hpp"

namespace tutti::core {

inline constexpr uint64_t kMaxMeshFrame = kMaxNotice + 64;
inline constexpr size_t kMaxMeshAddresses = 16;

// How a rank is reached, for those that connect to it.
struct MeshAddress {
  std::vector<SocketAddress> addresses;
  std::string who;    // "process 12 on host a"
  std::string token;  // rank 0's is the mesh's
};
std::string encode(const MeshAddress& address);
MeshAddress decode_address(std::string_view bytes);

// The description of a rank for all others, exchanged as soon as the mesh is complete.
struct MeshIdentity {
  std::string who;
  std::string space;  // where process ids mean the same; "": unknown
  uint32_t process = 0;

  static void fields(auto& wire, auto& identity) { wire(identity.who, identity.space, identity.process); }
};

// To all ranks. `bytes` lie in what was decoded.
struct MeshNotice {
  uint32_t origin = 0;
  uint64_t number = 0;  // of its origin's notices, from 1
  NoticeKind kind = NoticeKind::loss;
  std::string_view bytes;

  static void fields(auto& wire, auto& notice) { wire(notice.origin, notice.number, notice.kind, notice.bytes); }
};
MeshNotice decode_notice(std::string_view payload, uint32_t nranks);
// The question in an ask notice's bytes.
uint64_t roll_call_number(std::string_view bytes);

// To the rank that asked, along the way by which its question came.
struct MeshReply {
  uint32_t asker = 0;
  uint64_t number = 0;
  uint32_t origin = 0;
  std::string_view bytes;

  static void fields(auto& wire, auto& reply) { wire(reply.asker, reply.number, reply.origin, reply.bytes); }
};
MeshReply decode_reply(std::string_view payload, uint32_t nranks);

// To a neighbour: what one round of an all_gather hands on.
struct MeshPart {
  uint64_t gather = 0;
  uint32_t round = 0;
  std::string_view bytes;

  static void fields(auto& wire, auto& part) { wire(part.gather, part.round, part.bytes); }
};
// To one rank, over others; also as a notice's bytes.
std::string encode(const PairFrame& frame);
PairFrame decode_pair(std::string_view payload, uint32_t nranks);
// The longest frame among so many ranks.
constexpr uint64_t max_mesh_frame(uint32_t nranks) {
  return std::max<uint64_t>(kMaxMeshFrame, uint64_t{nranks} * (kMaxContribution + 8) + 64);
}

// The decoders throw Failure{TUTTI_MISMATCH} for bytes that no encoder makes.

}  // namespace tutti::core
