// SPDX-License-Identifier: Apache-2.0
//
// One send or receive, and what holds for several in one call.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

struct tutti_request;

namespace tutti::core {

// Belongs to its request.
struct Transfer {
  bool sending = false;
  bool on_stream = false;  // of device memory: done when it is matched
  uint32_t peer = 0;
  uint32_t tag = 0;
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint64_t timeout_ns = 0;
  uint64_t sequence = 0;
  uint64_t record = 0;  // its number in the flight recorder
  bool done = false;
  tutti_status status = TUTTI_OK;
  std::string error;
  tutti_request* request = nullptr;
  static Transfer of(bool sending, uint32_t peer, uint32_t tag, void* data, uint64_t bytes) {
    Transfer made;
    made.sending = sending;
    made.peer = peer;
    made.tag = tag;
    made.data = static_cast<std::byte*>(data);
    made.bytes = bytes;
    return made;
  }
};

// "send of 4096 bytes to rank 1 with tag 7"
std::string text_of(const Transfer& transfer);

// A group's sends to the rank itself and the receives that take them, in order. Throws Failure where they do not match.
std::vector<std::pair<const Transfer*, const Transfer*>> match_own(const std::vector<Transfer>& group, uint32_t rank);

// Throws Failure where a receive of the group overlaps anything else of it.
void require_apart(const std::vector<Transfer>& group);

}  // namespace tutti::core
