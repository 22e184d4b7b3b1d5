// SPDX-License-Identifier: Apache-2.0
//
// all_to_all with one message from each host to each other: `hierarchical`.
//
// H hosts of s ranks; a, B: latency and bytes per second between hosts, b, C: inside one; N: bytes of a block. The
// other hosts of a host are dealt out to its ranks. Inside a host all ranks hand what goes to another host to the rank
// that handles it; the handlers of two hosts exchange it, s^2 blocks, as one message; inside hosts it is handed out.
// (Two-level aggregation as in Traeff and Rougier, "MPI collectives and datatypes for hierarchical all-to-all
// communication", 2014.)
//
//     (s-1)(b + H N/C) + (H-1)/s (a + s^2 N/B) + (s-1)(b + H N/C), and a copy of what leaves the host.
//
// H-1 messages leave a host, where direct exchanges send s^2 (H-1): for small blocks. Hosts may be uneven, and have any
// ranks: blocks of ranks that do not follow each other travel inside hosts as a message for each run.
#pragma once

#include <tutti/sdk/algorithm.hpp>

namespace tutti::algorithms {

// Emits all_to_all. n >= 2.
void hierarchical_all_to_all(const sdk::Query& q, sdk::Schedule& s);

}  // namespace tutti::algorithms
