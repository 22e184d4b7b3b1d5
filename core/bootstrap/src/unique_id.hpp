// SPDX-License-Identifier: Apache-2.0
//
// A meeting place as bytes: what make_unique_id hands out as text, and what rank 0 writes into a shared folder.
#pragma once
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/descriptor.hpp"
#include "bootstrap/socket_address.hpp"
#include "tcp_spoke.hpp"

namespace tutti::core {

struct UniqueId {
  uint16_t port = 0;
  std::string name;    // kIdNameBytes random bytes
  std::string secret;  // kSecretBytes random bytes
  std::vector<SocketAddress> addresses;

  // "id:" and hexadecimal digits; addresses that do not fit into kMaxUniqueId are left out, the last first.
  std::string text() const;
  // Throws Failure{TUTTI_INVALID_ARGUMENT} when the text is none of text()'s.
  static UniqueId parse(const std::string& text);
  HubPlace place() const;
};
inline constexpr size_t kIdNameBytes = 16;

// Listens on any free port of all interfaces and describes that.
std::pair<UniqueId, Descriptor> open_meeting_place();

}  // namespace tutti::core
