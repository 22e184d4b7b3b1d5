// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>

#include "bootstrap/deadline.hpp"
#include "bootstrap/socket_address.hpp"
#include "frame_stream.hpp"
#include "meeting.hpp"
#include "wire.hpp"

namespace tutti::core {

// A rank that goes to another one, which awaits it as a TcpGuest.
struct Caller {
  uint32_t rank = 0;  // kAnyRank: the host says which
  uint32_t nranks = 0;
  uint32_t host = 0;  // the rank to be met
  std::string secret;
  std::string job;
  // The address may be stale or one of several: whoever answers wrongly there is not the host, another attempt may do.
  bool lenient = false;
  // Even who knows the secret and refuses may be the host of another run.
  bool retry_refusals = false;
  std::shared_ptr<const Tls> tls = nullptr;  // null: bytes travel as they are
  OpenDoor door = nullptr;                   // null: the host need not know how the caller is reached
};

// Nothing will come of this attempt; another may succeed.
struct Discouraged {
  std::string problem;
};

// A host's answer to a hello that it accepts.
struct Welcome {
  uint32_t host = 0;
  uint32_t rank = 0;  // the guest's, and of how many
  uint32_t nranks = 0;

  static void fields(auto& wire, auto& welcome) { wire(welcome.host, welcome.rank, welcome.nranks); }
};
// Throws Failure{TUTTI_MISMATCH}.
Welcome decode_welcome(std::string_view payload);

struct Introduced {
  FrameStream stream;
  Welcome welcome;
};

// The caller's side of one handshake (authentication.hpp): both have proved to know the secret by `limit`, and the host
// has welcomed the caller by `deadline`. A host that has identified a caller counts it as a rank. It would take a
// cancelled attempt for the loss of that rank, so such an attempt is waited for to the end. Throws Discouraged, or
// Failure when all further attempts are futile.
Introduced introduce(const Caller& caller, const SocketAddress& address, const Deadline& limit,
                     const Deadline& deadline);

}  // namespace tutti::core
