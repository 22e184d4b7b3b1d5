// SPDX-License-Identifier: Apache-2.0
//
// What goes over the connections of a control mesh, as bytes and back. Nothing here does any I/O.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "bootstrap/control_plane.hpp"
#include "bootstrap/socket_address.hpp"

namespace tutti::core {

inline constexpr uint64_t kMaxMeshFrame = kMaxNotice + 64;
inline constexpr size_t kMaxMeshAddresses = 16;

// How a rank is reached and what it is; exchanged when the mesh is made.
struct MeshAddress {
  std::vector<SocketAddress> addresses;
  std::string who;    // "process 12 on host a"
  std::string space;  // where process ids mean the same; "": unknown
  uint32_t process = 0;
  std::string token;  // rank 0's is the mesh's
};
std::string encode(const MeshAddress& address);
MeshAddress decode_address(std::string_view bytes);

// To all ranks. `bytes` lie in what was decoded.
struct MeshNotice {
  uint32_t origin = 0;
  uint64_t number = 0;  // of its origin's notices, from 1
  NoticeKind kind = NoticeKind::loss;
  std::string_view bytes;
};
std::string encode(const MeshNotice& notice);
MeshNotice decode_notice(std::string_view payload, uint32_t nranks);
// Of an ask notice's bytes.
uint64_t roll_call_number(std::string_view bytes);

// To the rank that asked, along the way by which its question came.
struct MeshReply {
  uint32_t asker = 0;
  uint64_t number = 0;
  uint32_t origin = 0;
  std::string_view bytes;
};
std::string encode(const MeshReply& reply);
MeshReply decode_reply(std::string_view payload, uint32_t nranks);

// The decoders throw Failure{TUTTI_MISMATCH} for bytes that no encoder makes.

}  // namespace tutti::core
