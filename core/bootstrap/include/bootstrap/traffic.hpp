// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace tutti::core {

// The bytes (without those of TLS) and frames that a rank has sent and received over connections. The proofs of a
// handshake count as bytes.
struct Traffic {
  uint64_t bytes_sent = 0, frames_sent = 0, bytes_received = 0, frames_received = 0;

  Traffic& operator+=(const Traffic& other) {
    bytes_sent += other.bytes_sent;
    frames_sent += other.frames_sent;
    bytes_received += other.bytes_received;
    frames_received += other.frames_received;
    return *this;
  }
};

}  // namespace tutti::core
