// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>

#include "engine/plan/plan.hpp"

struct tutti_request;

namespace tutti::core {

// A call, up to where the work is in the stream.
struct StreamCall {
  Shape shape;
  const void* in = nullptr;
  void* out = nullptr;
  void* stream = nullptr;
  uint64_t timeout_ns = 0;
  uint64_t sequence = 0;       // among the communicator's collectives
  bool capturing = false;      // the stream records what it is given
  uint32_t stream_number = 0;  // of the stream, whose handle may have been another one's; 0: the device does not tell
};

// The one that gets to know of the end of a call.
struct StreamAsker {
  tutti_request** request = nullptr;  // of the application, to be made; nullptr: it wants none
  tutti_request* again = nullptr;     // the persistent one that starts
  tutti_request* group = nullptr;     // the group of calls that this one is a part of
};

}  // namespace tutti::core
