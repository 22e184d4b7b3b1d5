// SPDX-License-Identifier: Apache-2.0
//
// Scans on several hosts: `hierarchical`. Each host has ranks that follow each other, since operands stand in rank
// order.
//
// H hosts of s ranks; a, B: latency and bytes per second between hosts, b, C: inside one; N: bytes of the block.
//
// scan            Each host scans by itself (the idea of hillis_steele.cpp). The last rank of a host then has its sum.
//                 These ranks scan over the hosts in the same way, and keep what lies before their host. It goes down a
//                 binomial tree to the other ranks of the host, which put it in front of what they have:
//                 ceil(log2 H)(a + N/B) + 2 ceil(log2 s)(b + N/C).
// exclusive_scan  The same, after each rank has handed its input to the next one of its host: one b + N/C more.
//
// A host sends at most ceil(log2 H) blocks, where a flat scan by doubling sends s times as many. (Sanders and Traeff,
// "Parallel prefix (scan) algorithms for MPI", 2006, treat such clusters of nodes.)
#pragma once

#include <tutti/sdk/algorithm.hpp>

namespace tutti::algorithms {

// Why not; "" when hierarchical_scan() serves the query.
std::string refuses_hierarchical_scan(const sdk::Query& q);
// Emits scan or exclusive_scan. n >= 2.
void hierarchical_scan(const sdk::Query& q, sdk::Schedule& s);

}  // namespace tutti::algorithms
