// SPDX-License-Identifier: Apache-2.0
//
// canonical_doubling: the canonical tree (canonical.hpp) with whole blocks, ceil(log2 n) rounds for any n.
//
// reduce           A node's sum is at one of its ranks: the root, or the lowest where the root is elsewhere. The other
//                  half's sum comes there: ceil(log2 n)(a + N/B). With root 0 it is the binomial tree of tree.cpp.
// all_reduce       All ranks of a node get its sum: each gets the other half's from one of its ranks. With a power of
//                  two this is recursive doubling; otherwise a rank of the upper half, which is shorter, sends to
//                  several: ceil(log2 n)(a + N/B) where the upper halves are as long as the lower ones, more bytes at
//                  one rank where they are not.
// scan,            Recursive doubling over partners whose numbers differ in one bit: ceil(log2 n) rounds of two messages
// exclusive_scan   per rank. The sum of a lower half goes in front of what an upper half's rank has, which is where the
//                  tree over its first ranks has it.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "canonical.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

void reduce(const Query& q, Schedule& s) {
  const auto owner = [&](uint32_t first, uint32_t end) { return first <= q.root && q.root < end ? q.root : first; };
  const std::vector<CanonicalNode> nodes = canonical_nodes(q.n, q.rank);
  const CanonicalNode& lowest = nodes.front();
  const bool is_leaf = owner(lowest.first, lowest.first + lowest.count) != q.rank;
  if (!q.is_root() && !is_leaf) s.declare_scratch(1);
  const tutti_span partial = q.is_root() ? out() : scratch();
  Lane lane = s.lane();
  tutti_span sum = in();
  for (const CanonicalNode& node : nodes) {
    const uint32_t end = node.first + node.count, target = owner(node.first, end);
    lane.level(node.height());
    if (target != q.rank) return void(lane.send(target, sum));
    const uint32_t other = node.upper ? owner(node.first, node.middle) : owner(node.middle, end);
    auto step = lane.recv_reduce(other, partial, sum).incoming_left(node.upper);
    if (node.count == q.n) step.final();
    sum = partial;
  }
}

void all_reduce(const Query& q, Schedule& s) {
  s.declare_scratch(1);
  Lane lane = s.lane();
  const std::vector<CanonicalSpread> spreads = canonical_spreads(q.n, q.rank);
  // The sum moves between OUT and scratch, since it may not change while it is sent. It begins so that it ends in OUT,
  // unless OUT is where it begins; then the last operand waits in scratch until the sum has been sent.
  bool to_out = !q.in_place && spreads.size() % 2 == 1;
  tutti_span sum = in();
  for (const CanonicalSpread& spread : spreads) {
    const bool last = &spread == &spreads.back();
    lane.level(spread.level);
    for (const CanonicalPart& part : spread.away) lane.send(part.peer, sum);
    if (last && !to_out) {
      lane.recv(spread.own.peer, scratch());
      lane.level(spread.level + 1);
      const tutti_span came = scratch();
      lane.reduce(out(), {spread.from_lower ? came : sum, spread.from_lower ? sum : came}).final();
      return;
    }
    const tutti_span next = to_out ? out() : scratch();
    auto step = lane.recv_reduce(spread.own.peer, next, sum).incoming_left(spread.from_lower);
    if (last) step.final();
    sum = next;
    to_out = !to_out;
  }
}

void scan(const Query& q, Schedule& s) {
  const bool exclusive = q.collective == TUTTI_EXCLUSIVE_SCAN;
  s.declare_scratch(exclusive ? 3 : 2);
  const tutti_span came = scratch(0), kept = scratch(1), place = exclusive ? scratch(2) : out();
  Lane lane = s.lane();
  tutti_span total = in(), result = in();  // of the node so far; of its ranks up to this one, or before it
  bool has_result = !exclusive;
  uint32_t level = 0;
  for (uint32_t bit = 1; bit < q.n; bit *= 2, level += 3) {
    const uint32_t peer = q.rank ^ bit;
    if (peer >= q.n) continue;
    const bool upper = (q.rank & bit) != 0;
    const uint32_t end = (q.rank | (2 * bit - 1)) + 1;  // of the node
    const bool goes_on = end < q.n;                     // there are ranks behind it
    lane.level(level + 1);
    if (!upper || goes_on) lane.send(peer, total);
    if (upper || goes_on) lane.recv(peer, came);
    if (goes_on) {
      lane.level(level + 2).reduce(kept, {upper ? came : total, upper ? total : came});
      total = kept;
    }
    if (!upper) continue;
    lane.level(level + 3);
    const bool last = q.rank < 2 * bit;  // no further bit of its number is set
    auto step = has_result ? lane.reduce(place, {came, result}) : lane.copy(place, came);
    if (last && !exclusive) step.final();
    result = place;
    has_result = true;
  }
  // An exclusive result may have come as it is, so all of them are completed by a copy.
  if (exclusive ? q.rank > 0 : q.rank == 0) lane.level(level + 1).copy(out(), result).final();
}

struct CanonicalDoubling {
  static constexpr const char* name = "canonical_doubling";
  static constexpr const char* summary = "whole blocks along the canonical tree: the fewest rounds";
  static constexpr uint64_t collectives = mask({TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN});
  static void schedule(const Query& q, Schedule& s) {
    s.sliced(1);  // one message at most from each rank to each other
    if (alone(q, s)) return;
    if (q.collective == TUTTI_REDUCE) return reduce(q, s);
    if (q.collective == TUTTI_ALL_REDUCE) return all_reduce(q, s);
    scan(q, s);
  }
};
}  // namespace

const tutti_algorithm canonical_doubling = make_algorithm<CanonicalDoubling>();

}  // namespace tutti::algorithms
