// SPDX-License-Identifier: Apache-2.0
//
// Bytes that a peer's kernel does not acknowledge. A live host acknowledges whatever its processes do, so packets that
// are sent again and again without an answer are lost on the way: the network drops them, or the host is gone.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "stream.hpp"

namespace tutti::tcp {

// The addresses of a connected socket's two ends, without ports; "" where the kernel does not tell.
struct Route {
  std::string from, to;
};
Route route_of(const Socket& socket);

// The kernel's view of a connection, also of one that has just broken.
struct Unacknowledged {
  uint64_t bytes = 0;                   // written, not acknowledged
  uint32_t retransmissions = 0;         // in a row, without an answer
  std::chrono::milliseconds silence{};  // since the last acknowledgement came
};
Unacknowledged unacknowledged_of(const Socket& socket);

// One sentence of which bytes are stuck, for how long and where. "": nothing is, or a packet or two may have been lost
// by chance, which TCP repairs.
std::string describe(const Unacknowledged& state, const Route& route);

}  // namespace tutti::tcp
