// SPDX-License-Identifier: Apache-2.0
//
// One send or receive, and what holds for several in one call.
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <iterator>
#include <span>
#include <string>
#include <vector>

#include "engine/fabric/link.hpp"

struct tutti_request;

namespace tutti::core {

// The bytes of a message that does not fit into its RTS, on their way.
struct Bulk {
  Outflow out;
  Inflow in;
  RegisteredSpan memory;  // of the message, if it is registered
  bool opened = false;
  Bulk* next = nullptr;
};

constexpr uint64_t no_timeout = UINT64_MAX;

// Belongs to its request.
struct Transfer {
  bool sending = false;
  bool on_stream = false;  // of a group in a stream, which has a device's memory where it is not empty
  bool done = false;
  bool any_peer = false, any_tag = false;  // of a receive, until it has met its send. Any peer is UINT32_MAX
  uint32_t peer = 0;
  uint32_t tag = 0;
  std::byte* data = nullptr;
  uint64_t bytes = 0;
  uint64_t timeout_ns = 0;  // or no_timeout
  uint64_t record = 0;      // its number in the flight recorder
  tutti_request* request = nullptr;
  tutti_envelope* envelope = nullptr;  // of the application: to be written when the receive is done
  // Used by PointToPoint.
  uint64_t order = 0;  // among receives
  uint64_t begun_ns = 0;  // when overdue() first saw it; 0: it has not
  uint64_t sequence = 0;
  uint64_t sent = 0;  // of a receive that was matched: the size of the send
  Bulk* bulk = nullptr;
  Transfer *next = nullptr, *previous = nullptr;

  // Do streams carry its bytes? Then it is done when it is matched.
  bool by_stream() const { return on_stream && bytes; }
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
// "rank 1 with tag 7", "any rank with any tag"
std::string other_end_of(const Transfer& transfer);

// A group's sends to the rank itself are taken by its receives from itself, in order. Throws Failure where they do not
// match.
void check_own(std::span<const Transfer> group, uint32_t rank);
// Calls `visit(send, receive)` for each such pair of a checked group.
template <typename Group, typename Visit>
void for_each_own(Group&& group, uint32_t rank, Visit&& visit) {
  auto receive = std::begin(group);
  for (auto& send : group) {
    if (send.peer != rank || !send.sending) continue;
    while (receive->peer != rank || receive->sending) ++receive;
    visit(send, *receive++);
  }
}

// Throws Failure where a receive of the group overlaps anything else of it. `sorted`: memory for the check.
void require_apart(std::span<const Transfer> group, std::vector<const Transfer*>& sorted);

}  // namespace tutti::core
