// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/deadline.hpp"
#include "bootstrap/descriptor.hpp"
#include "bootstrap/socket_address.hpp"
#include "meeting.hpp"

namespace tutti::core {

// Where rank 0 listens. The rendezvous has the rest; it lives until open_hub returns.
struct HubConfig {
  const Rendezvous& rendezvous;
  Descriptor listener;
  std::string place;  // what it listens on, for messages
  std::string secret;
  std::string job;
  // A rank of another world is turned away like a stranger instead of ending the meeting: where a stale address may
  // have led it here.
  bool lenient = false;
};

// Rank 0 of a star: all other ranks connect to it. Strangers and slow handshakes hold up nobody.
// Returns when all ranks have joined,
// with what each needs to reach the next.
std::unique_ptr<Meeting> open_hub(HubConfig config, const OpenDoor& door, const Deadline& deadline);

}  // namespace tutti::core
