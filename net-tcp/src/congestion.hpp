// SPDX-License-Identifier: Apache-2.0
//
// The congestion control of a socket (TUTTI_TCP_CONGESTION).
//
// BBR (Cardwell et al., "BBR: Congestion-Based Congestion Control", ACM Queue 14(5), 2016) sends at the rate that it
// has measured. A collective's connection is silent between its messages, and shares its link with the connections to
// other peers, so that rate is far too low between near hosts, where a round trip takes less time than a message. CUBIC
// and Reno are limited by a window only, which holds a message after the first few. docs/performance.md has figures.
// Over a long or lossy way BBR is the better one, so there the system's choice is used.
#pragma once

#include <chrono>
#include <string>
#include <string_view>
#include <vector>

#include "stream.hpp"

namespace tutti::tcp {

// Round trips of at most this long are within a site.
inline constexpr std::chrono::microseconds kNear{500};

// The algorithms that are better than the system's for a near peer, the best one first. Empty: the system's is.
std::vector<std::string> better_congestion(std::string_view system);
// "auto", "system", or an algorithm of this kernel that this process may use; otherwise throws sdk::Error.
Congestion choose_congestion(const std::string& setting);

// For a new socket: one that has begun with BBR is paced for ever, so it begins as for a near peer.
void begin_congestion(const Socket& socket, const Congestion& congestion);
// For a connected one, whose round trip is known by now.
void settle_congestion(const Socket& socket, const Congestion& congestion, std::chrono::microseconds round_trip);

// The kernel's estimate for a connected socket; where it has none, the longest there is.
std::chrono::microseconds round_trip_of(const Socket& socket);

}  // namespace tutti::tcp
