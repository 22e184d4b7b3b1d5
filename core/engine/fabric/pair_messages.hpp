// SPDX-License-Identifier: Apache-2.0
//
// Pair messages (transport.h): by them two endpoints of one transport connect. They travel over the communicator's
// control plane, each with the transport's name before it. The core's own have a kind of theirs there.
#pragma once

#include <tutti/plugin/transport.h>

#include <string>
#include <string_view>

#include "base/wire.hpp"

namespace tutti::core {

class ControlPlane;
struct Port;

// One endpoint's way to send them. Stays where it is as long as the endpoint.
class PairMessages {
 public:
  PairMessages() = default;
  PairMessages(const PairMessages&) = delete;
  PairMessages& operator=(const PairMessages&) = delete;

  // The table for the endpoint's config.
  const tutti_pair_messages* open(ControlPlane& control, std::string transport);

 private:
  static tutti_status send(void* self, uint32_t peer, const void* data, uint64_t bytes);

  tutti_pair_messages table_{};
  ControlPlane* control_ = nullptr;
  std::string transport_;
};

// The kinds of the core's own messages. No transport's name has a space.
inline constexpr std::string_view words_of_leaving = "words of leaving";  // comm/departures
inline constexpr std::string_view refusals = "refusals of transports";    // Fabric
// The transport that a message is for, or its kind, and its bytes.
struct PairMessageParts {
  std::string transport;
  std::string_view bytes;

  static void fields(auto& wire, auto& parts) { wire(Field("transport", parts.transport), parts.bytes); }
};
// Throws Failure when the message, which came from `from`, is ill. The bytes lie in it.
PairMessageParts split_pair_message(uint32_t from, std::string_view message);

}  // namespace tutti::core
