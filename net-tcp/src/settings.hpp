// SPDX-License-Identifier: Apache-2.0
//
// The plugin's settings, read from the host's configuration and checked; README.md has the table.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tutti::tcp {

// Messages of at most so many bytes are copied on their way out, which makes them INLINE-able and lets them share a
// write.
inline constexpr uint64_t kInlineBytes = 4096;
// So many messages of a lane may travel before their RECVs are known to be posted, by size: many of at most
// eager_bytes, a few of at most kAheadBytes, none larger. It bounds what a receiver may have to hold.
inline constexpr uint32_t kEagerWindow = 16;
inline constexpr uint32_t kAheadWindow = 2;
inline constexpr uint64_t kAheadBytes = 256 << 10;
constexpr uint32_t window_for(uint64_t bytes, uint64_t eager_bytes) {
  return bytes <= eager_bytes ? kEagerWindow : bytes <= kAheadBytes ? kAheadWindow : 0;
}
// RECVs, and SENDs that wait, per link and lane.
inline constexpr uint32_t kQueueDepth = 64;
inline constexpr uint32_t kMaxSockets = 8;
// A stranger has so long to prove that it belongs to the job.
inline constexpr std::chrono::milliseconds kHandshakeLimit{5000};
// How long closing an endpoint may wait for completed messages to leave.
inline constexpr std::chrono::milliseconds kLinger{2000};

struct Settings {
  std::string interfaces;   // TUTTI_TCP_INTERFACE, empty: all
  uint16_t first_port = 0;  // TUTTI_TCP_PORTS, 0: ephemeral
  uint16_t last_port = 0;
  uint32_t sockets = 1;
  uint64_t fragment_bytes = 0;
  uint64_t eager_bytes = 0;
  uint64_t buffer_bytes = 0;    // 0: the kernel's own sizing
  uint32_t keepalive_s = 0;     // 0: off
  uint32_t user_timeout_s = 0;  // 0: the kernel's own
  std::chrono::seconds connect_timeout{0};
  std::string tls_certificate;  // TUTTI_TLS_CERTIFICATE, a file; empty: no TLS
  std::string tls_key;          // TUTTI_TLS_KEY
  std::string tls_ca;           // TUTTI_TLS_CA
  std::string host_key;         // what ranks of one host (one network namespace) have in common

  // Throws sdk::Error that names the setting, its value and what is allowed.
  static Settings read();
};

}  // namespace tutti::tcp
