// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/deadline.hpp"
#include "bootstrap/socket_address.hpp"
#include "meeting.hpp"

namespace tutti::core {

// A possible address of rank 0, as known at one moment.
struct HubPlace {
  std::vector<SocketAddress> addresses;  // tried in turn
  std::string text;                      // for messages
  std::string secret;
  std::string job;
};

// The rendezvous has the rest; it lives until join_hub returns.
struct SpokeConfig {
  const Rendezvous& rendezvous;
  std::string where;  // for messages, as long as the place is not known
  // Asked before each round of attempts; nothing, with `problem` set, when the place is not known yet.
  std::function<std::optional<HubPlace>(std::string& problem)> place;
  // The place may be stale or one of several: whoever answers wrongly there is not rank 0, try on until the deadline.
  bool lenient = false;
  // Even who knows the secret and refuses may be rank 0 of another run: try on.
  bool retry_refusals = false;
};

// A rank other than 0 of a star (tcp_hub.hpp). Returns when all ranks have joined.
std::unique_ptr<Meeting> join_hub(const SpokeConfig& config, const OpenDoor& door, const Deadline& deadline);

}  // namespace tutti::core
