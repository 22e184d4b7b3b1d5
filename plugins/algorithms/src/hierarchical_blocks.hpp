// SPDX-License-Identifier: Apache-2.0
//
// all_gather and reduce_scatter over hosts and, inside them, over nodes: `hierarchical` (one node per host) and
// `three_level`. Blocks may be unequal.
//
// H hosts of D nodes of s ranks; a, B: latency and bytes per second between hosts, b, C: inside one; N: bytes of a
// block.
//
// all_gather      Each rank sends its block to one rank of each other host, the i-th of a host to the i-th there (mod
//                 the number of its ranks). Each rank hands what it has to one rank of each other node of its host, and
//                 then to the ranks of its node: a host receives each block once, and a node each of them once.
//                 (H-1)(a + N/B) + (D-1)(b + H N/C) + (s-1)(b + D H N/C).
// reduce_scatter  The same backwards: the blocks of other hosts' ranks are first summed inside the node and the host.
#pragma once

#include <tutti/sdk/algorithm.hpp>

#include "hosts.hpp"

namespace tutti::algorithms {

// Emit the collectives, of equal or unequal blocks. n >= 2.
void hierarchical_all_gather(const sdk::Query& q, sdk::Schedule& s, Nodes::By by);
void hierarchical_reduce_scatter(const sdk::Query& q, sdk::Schedule& s, Nodes::By by);

}  // namespace tutti::algorithms
