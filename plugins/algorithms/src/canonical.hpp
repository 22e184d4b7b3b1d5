// SPDX-License-Identifier: Apache-2.0
//
// The canonical order of a reduction: one binary tree over the numbers of the ranks, whatever algorithm runs it. A node
// is a run of ranks. It is split at the largest power of two below its length, and the lower half is the left operand:
//
//   n = 7: ((0 1) (2 3)) ((4 5) 6)
//
// The algorithms of this file family build that tree in different ways, so all of them give the same bits. The verifier
// proves it (Proof::canonical).
#pragma once

#include <bit>
#include <cstdint>
#include <vector>

namespace tutti::algorithms {

// A node of the tree, with at least two ranks, as one of its ranks sees it.
struct CanonicalNode {
  uint32_t first, count;  // its ranks
  uint32_t middle;        // the first rank of the upper half
  bool upper;             // the rank is in the upper half

  // The number of rounds after which it can be complete.
  uint32_t height() const { return static_cast<uint32_t>(std::bit_width(count - 1)); }
};

// The nodes that a rank of n belongs to, from the smallest to the whole.
std::vector<CanonicalNode> canonical_nodes(uint32_t n, uint32_t rank);

// A run of pieces, and the rank that sends it or gets it.
struct CanonicalPart {
  uint32_t peer, first, count;
};

// The part of a rank at a node when n pieces are to be spread evenly over n ranks. Below the node each half holds all
// pieces, spread over its ranks; above it the node does. So each rank of a half hands over a part of its run of pieces
// to the other half and completes the rest, `own`, with what one rank of the other half hands over.
struct CanonicalSpread {
  uint32_t level;                   // the node's height
  CanonicalPart own;                // what it completes; the peer that it comes from
  bool from_lower;                  // that peer is in the lower half: the left operand
  std::vector<CanonicalPart> away;  // what it hands over
};

// The pieces in their order: piece i ends at rank owners[i]. The order keeps all runs in one piece.
std::vector<uint32_t> canonical_owners(uint32_t n);
// The parts of one rank at its nodes, from the smallest to the whole.
std::vector<CanonicalSpread> canonical_spreads(uint32_t n, uint32_t rank);

}  // namespace tutti::algorithms
