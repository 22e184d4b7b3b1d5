// SPDX-License-Identifier: Apache-2.0
//
// Reliable queue pairs, from making them to the state in which they send.
#pragma once

#include <atomic>
#include <cstdint>

#include "port.hpp"
#include "verbs.hpp"

namespace tutti::ib {

class Rail;

// The other end of a queue pair, and the own GID that goes with it.
struct FarEnd {
  uint32_t qp = 0;
  uint32_t psn = 0;
  uint32_t mtu = 0;  // ibv_mtu
  uint32_t lid = 0;
  RawGid gid{};
  uint32_t own_gid_index = 0;
};

// With room for `sends` requests of two parts each; `max_inline` is 0 where the device has none. Without `receives` it
// takes nothing but what `access` allows its far end: writes. `last_receive_reached` is set by take_events (verbs.hpp).
// Throws sdk::Error.
QueuePair make_queue_pair(const Rail& rail, ibv_cq* completions, ibv_srq* receives, uint32_t sends,
                          uint32_t* max_inline, unsigned access, std::atomic<bool>* last_receive_reached = nullptr);
// Throws sdk::Error.
void connect_queue_pair(ibv_qp* qp, const Rail& rail, uint32_t psn, const FarEnd& to);

}  // namespace tutti::ib
