// SPDX-License-Identifier: Apache-2.0
//
// Collectives over the leaders of groups: `leaders` (groups are hosts) and `three_level` (NUMA nodes, and hosts of
// them). A leader speaks for its group: the root where that is a member, otherwise the first rank.
//
// H hosts of D nodes of s ranks; a, B: latency and bytes per second between hosts, b, C: inside one; N: bytes of a
// block. The idea is that of MagPIe (Kielmann et al., "MPI's reduction operations in clustered wide area systems",
// 1999): a message crosses the slow network as rarely as possible. With one node per host D is 1.
//
// broadcast, reduce   Binomial trees over the leaders of hosts, over those of the nodes of each host, and inside nodes:
//                     ceil(log2 H)(a + N/B) + (ceil(log2 D) + ceil(log2 s))(b + N/C).
// all_reduce          Trees inside hosts reduce to the leaders, which double recursively among themselves (doubling.cpp
//                     has the idea), and trees hand the result out: log2 H (a + N/B) + 2 ceil(log2 s)(b + N/C), two
//                     rounds more between hosts unless H is a power of two. Operands are in rank order where hosts
//                     have consecutive ranks.
// gather, scatter     A leader handles its group's blocks as one message for each run of consecutive ranks:
//                     (H-1) a + (n-sD) N/B + (s-1 + D-1) b + (sD-1) N/C at the root.
// barrier             Trees up, dissemination over the hosts' leaders, trees down:
//                     ceil(log2 H) a + 2 (ceil(log2 D) + ceil(log2 s)) b.
#pragma once

#include <tutti/sdk/algorithm.hpp>

#include "hosts.hpp"

namespace tutti::algorithms {

// Emits the query's collective, one of these; n >= 2. A barrier needs two lanes.
void over_leaders(const sdk::Query& q, sdk::Schedule& s, Nodes::By by);

}  // namespace tutti::algorithms
