// SPDX-License-Identifier: Apache-2.0
//
// all_reduce over hosts and, inside them, over nodes: `hierarchical` (one node per host) and `three_level`.
//
// H hosts of D nodes of s ranks; a, B: latency and bytes per second between hosts, b, C: inside one; N: bytes of a
// block.
//
// A reduce-scatter inside each host leaves every rank one part of the block, summed over the host. The ranks that hold
// the same part, one of each host, reduce it among themselves: by halving and doubling (cyclic.hpp) over H pieces of
// it. An all-gather inside each host ends it. A host sends 2 (H-1)/H N bytes, the fewest possible, whatever its number
// of ranks: 2(s + D - 2) b + 2(1 - 1/(s D)) N/C + 2 ceil(log2 H) a + 2 (H-1)/H N/B. (Levels as in BlueConnect, Cho et
// al. 2019.)
//
// Inside a host of several nodes each rank first sums over its node its own part and those of some ranks of other
// nodes, and sends these there: a part crosses between two nodes once. With one node that is the direct exchange. The
// ranks of nodes have parts in turn, so that what a rank sums is in one piece where nodes are even.
//
// Uneven hosts cut the block at i/s for every number s of ranks that occurs. So each interval between two cuts has one
// owner on each host, and these ranks reduce it; a rank of a small host owns several intervals. The parts inside and
// between hosts are in two lanes: a slice crosses the network while the next one is summed. Each piece is completed at
// one rank and copied: equal bits everywhere.
#pragma once

#include <string>
#include <tutti/sdk/algorithm.hpp>

#include "hosts.hpp"

namespace tutti::algorithms {

// Why a block cannot be cut for these hosts; "": it can.
std::string refuses_hierarchical_all_reduce(const Hosts& hosts);
// Emits all_reduce. n >= 2.
void hierarchical_all_reduce(const sdk::Query& q, sdk::Schedule& s, Nodes::By by);

}  // namespace tutti::algorithms
