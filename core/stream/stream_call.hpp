// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "engine/p2p/transfer.hpp"
#include "engine/plan/plan.hpp"

struct tutti_request;

namespace tutti::core {

// A call, up to where the work is in the stream.
struct StreamCall {
  Shape shape;
  const void* in = nullptr;
  void* out = nullptr;
  void* stream = nullptr;
  uint64_t tag = 0;  // of the application
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

// A call whose work is in the stream, until the device has finished it.
struct StreamOperation {
  StreamCall call;
  uint64_t transfers = 0;  // instead of a collective
  Transfer transfer;       // the first of them
  uint64_t number = 0;
  tutti_request* request = nullptr;
  uint32_t first = 0, last = 0;   // of the counter
  uint64_t commands = 0;          // that may be in the device's queue
  bool counted = false;           // by the device's gate
  uint64_t last_progress_ns = 0;  // 0: it has moved since somebody has looked

  std::optional<uint64_t> sequence() const { return transfers ? std::nullopt : std::optional(call.sequence); }
  std::string text() const;
};

}  // namespace tutti::core
