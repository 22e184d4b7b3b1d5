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

namespace tutti::core {

// Where rank 0 may be, as known at one moment.
struct HubPlace {
  std::vector<SocketAddress> addresses;  // tried in turn
  std::string text;                      // for messages
  std::string secret;
  std::string job;
};

struct TcpSpokeConfig {
  uint32_t rank = 0;
  uint32_t nranks = 0;
  std::string where = {};  // for messages, as long as the place is not known
  // Asked before each round of attempts; nothing, with `problem` set, when the place is not known yet.
  std::function<std::optional<HubPlace>(std::string& problem)> place;
  // The place may be stale or one of several: whoever answers wrongly there is not rank 0, try on until the deadline.
  bool lenient = false;
  // Even who knows the secret and refuses may be rank 0 of another run: try on.
  bool retry_refusals = false;
  std::shared_ptr<const Tls> tls = nullptr;
  std::function<std::string()> hopeless = nullptr;  // as in Rendezvous
};

// A rank other than 0 of a star (tcp_hub.hpp). Returns when all ranks have joined.
std::unique_ptr<Bootstrap> join_hub(TcpSpokeConfig config, const Deadline& deadline);

}  // namespace tutti::core
