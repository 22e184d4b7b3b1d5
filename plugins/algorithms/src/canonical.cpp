// SPDX-License-Identifier: Apache-2.0
//
// The order of the pieces. The ranks of a node's lower half form as many groups as its upper half has ranks, as equal as
// possible. No group is empty, since the lower half is at least as long. The order is: the first group, the first rank
// of the upper half, the second group, the second rank, and so on. Below the node a rank of the upper half also holds
// the runs of the group in front of it, and the last rank of a group that of the rank behind it. These are neighbours,
// so each rank's pieces are one run at every node.
#include "canonical.hpp"

#include <algorithm>

namespace tutti::algorithms {
namespace {

uint32_t lower_half(uint32_t count) { return std::bit_ceil(count) / 2; }

void append_owners(uint32_t first, uint32_t count, std::vector<uint32_t>& order) {
  if (count == 1) return order.push_back(first);
  const uint32_t lower = lower_half(count), upper = count - lower;
  std::vector<uint32_t> left, right;
  append_owners(first, lower, left);
  append_owners(first + lower, upper, right);
  for (uint32_t group = 0, i = 0; group < upper; ++group) {
    const auto end = static_cast<uint32_t>(uint64_t{group + 1} * lower / upper);
    for (; i < end; ++i) order.push_back(left[i]);
    order.push_back(right[group]);
  }
}

// The halves of a node's runs, which are in the order of its owners; and what `rank` does there.
class Halves {
 public:
  Halves(const std::vector<CanonicalPart>& runs, uint32_t middle, uint32_t rank) : rank_(rank) {
    size_t begin = 0;  // of the group
    for (size_t i = 0; i < runs.size(); ++i)
      if (runs[i].peer >= middle) {
        split(runs, begin, i);
        begin = i + 1;
      }
  }
  std::vector<CanonicalPart> lower, upper;  // who holds what below the node
  CanonicalSpread spread{};

 private:
  // One group, and the rank of the upper half at `last`.
  void split(const std::vector<CanonicalPart>& runs, size_t begin, size_t last) {
    const CanonicalPart& above = runs[last];
    CanonicalPart whole = above;
    whole.first = runs[begin].first;
    whole.count = above.first + above.count - whole.first;
    upper.push_back(whole);
    for (size_t i = begin; i < last; ++i) {
      const CanonicalPart& below = runs[i];
      const bool neighbour = i + 1 == last;
      lower.push_back(below);
      if (neighbour) lower.back().count += above.count;
      if (below.peer == rank_) {
        spread.own = {above.peer, below.first, below.count};
        if (neighbour) spread.away.push_back({above.peer, above.first, above.count});
      }
      if (above.peer == rank_) spread.away.push_back(below);
    }
    if (above.peer != rank_) return;
    spread.own = {runs[last - 1].peer, above.first, above.count};
    spread.from_lower = true;
  }

  const uint32_t rank_;
};

}  // namespace

std::vector<CanonicalNode> canonical_nodes(uint32_t n, uint32_t rank) {
  std::vector<CanonicalNode> nodes;
  for (uint32_t first = 0, count = n; count > 1;) {
    const uint32_t lower = lower_half(count);
    const bool upper = rank >= first + lower;
    nodes.push_back({first, count, first + lower, upper});
    first += upper ? lower : 0;
    count = upper ? count - lower : lower;
  }
  std::ranges::reverse(nodes);
  return nodes;
}

std::vector<uint32_t> canonical_owners(uint32_t n) {
  std::vector<uint32_t> owners;
  append_owners(0, n, owners);
  return owners;
}

std::vector<CanonicalSpread> canonical_spreads(uint32_t n, uint32_t rank) {
  std::vector<CanonicalPart> runs;
  for (const uint32_t owner : canonical_owners(n)) runs.push_back({owner, static_cast<uint32_t>(runs.size()), 1});
  std::vector<CanonicalNode> nodes = canonical_nodes(n, rank);
  std::vector<CanonicalSpread> spreads;
  for (auto node = nodes.rbegin(); node != nodes.rend(); ++node) {
    Halves halves(runs, node->middle, rank);
    halves.spread.level = node->height();
    spreads.push_back(std::move(halves.spread));
    runs = std::move(node->upper ? halves.upper : halves.lower);
  }
  std::ranges::reverse(spreads);
  return spreads;
}

}  // namespace tutti::algorithms
