// SPDX-License-Identifier: Apache-2.0
//
// The plugin's settings, read from the host's configuration and checked; README.md has the table.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace tutti::tcp {

// Messages of at most this many bytes are copied on their way out. They may be INLINE, and several share one write.
inline constexpr uint64_t kInlineBytes = 4096;
// How many messages of a lane may travel before the sender knows that their RECVs are posted: kSmallWindow messages of
// at most kInlineBytes, kEagerWindow messages of at most eager_bytes, kAheadWindow messages of at most kAheadBytes, no
// larger ones. This bounds the memory that a receiver needs for early messages. In a stream of small messages one way,
// the announcements of their RECVs are the receiver's only writes, so they are few.
inline constexpr uint32_t kSmallWindow = 64;
inline constexpr uint32_t kEagerWindow = 16;
inline constexpr uint32_t kAheadWindow = 2;
inline constexpr uint64_t kAheadBytes = 256 << 10;
constexpr uint32_t window_for(uint64_t bytes, uint64_t eager_bytes) {
  if (bytes <= kInlineBytes) return kSmallWindow;
  return bytes <= eager_bytes ? kEagerWindow : bytes <= kAheadBytes ? kAheadWindow : 0;
}
// The most RECVs, and the most waiting SENDs, per link and lane.
inline constexpr uint32_t kQueueDepth = 64;
inline constexpr uint32_t kMaxSockets = 8;
// The longest control message.
inline constexpr uint32_t kControlBytes = 256;
// How long a new connection may take to show its token.
inline constexpr std::chrono::milliseconds kStrangerLimit{5000};
// The longest that closing an endpoint waits for completed messages to leave.
inline constexpr std::chrono::milliseconds kLinger{2000};

// The congestion control of sockets; empty: the system's.
struct Congestion {
  std::string near;  // of new sockets
  std::string far;   // of those whose peer proves to be far; empty: as near
};

struct Settings {
  std::string interfaces;   // TUTTI_TCP_INTERFACE, empty: all
  uint16_t first_port = 0;  // TUTTI_TCP_PORTS, 0: ephemeral
  uint16_t last_port = 0;
  uint32_t sockets = 1;
  uint64_t fragment_bytes = 0;
  uint64_t eager_bytes = 0;
  uint64_t buffer_bytes = 0;    // 0: the kernel's automatic sizing
  uint32_t keepalive_s = 0;     // 0: off
  uint32_t user_timeout_s = 0;  // 0: the kernel default
  Congestion congestion;
  uint32_t first = 0;    // the number of a lane's first message
  uint32_t piece = 0;    // a read or write moves at most so many bytes, a random number of them; 0: no limit
  std::string host_key;  // equal for ranks of one host (one network namespace)
  // From the endpoint's configuration:
  std::chrono::nanoseconds timeout{0};  // the longest that an operation waits for a connection; 0: no limit
  uint32_t traffic_class = 0;           // 0: the system default

  // Throws sdk::Error that names the setting, its value and what is allowed.
  static Settings read();
};

}  // namespace tutti::tcp
