// SPDX-License-Identifier: Apache-2.0
//
// canonical_direct: every value goes straight to the rank that needs it, which reduces all of them in the canonical
// order (canonical.hpp), by itself and in pairs.
//
// all_reduce       a + (n-1) N/B: everybody gets all blocks
// reduce_scatter   (n-1)(a + N/B) for blocks of N bytes; also with unequal blocks
//
// The exchange is that of direct.cpp. It differs in what follows: a reduction over a list of chunks folds from the left
// and rounds once, so it has neither the tree nor the roundings. Scratch is n-1 blocks.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "canonical.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

// Reduces the values of some consecutive ranks, each at its place, into one of these places that is in scratch; those of
// all ranks into OUT. Returns the place.
tutti_span fold(const Query& q, Lane lane, const std::vector<tutti_span>& values, uint32_t first, uint32_t count) {
  if (count == 1) return values[first];
  const CanonicalNode node = canonical_nodes(count, 0).back();
  const tutti_span left = fold(q, lane, values, first, node.middle);
  const tutti_span right = fold(q, lane, values, first + node.middle, count - node.middle);
  const bool all = count == q.n;
  const tutti_span result = all ? out() : left.buffer == TUTTI_BUFFER_SCRATCH ? left : right;
  auto step = lane.level(q.n - 1 + node.height()).reduce(result, {left, right});
  if (all) step.final();
  return result;
}

struct CanonicalDirect {
  static constexpr const char* name = "canonical_direct";
  static constexpr const char* summary = "straight from owner to user, reduced in the canonical order";
  static constexpr uint64_t collectives = mask({TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_REDUCE_SCATTER_V});
  static void schedule(const Query& q, Schedule& s) {
    s.sliced(1);  // one message from each rank to each other
    if (alone(q, s)) return;
    const bool whole = q.collective == TUTTI_ALL_REDUCE;
    s.declare_scratch(std::vector<tutti_extent>(q.n - 1, tutti_extent{q.class_of(q.rank), 0}));
    const auto block = [&](uint32_t rank) { return in(whole ? 0 : rank); };
    std::vector<tutti_span> values(q.n, block(q.rank));
    Lane lane = s.lane();
    for (uint32_t k = 1; k < q.n; ++k) {
      lane.level(k).send(q.next(k), block(q.next(k)));
      lane.recv(q.prev(k), scratch(k - 1));
      values[q.prev(k)] = scratch(k - 1);
    }
    fold(q, lane, values, 0, q.n);
  }
};
}  // namespace

const tutti_algorithm canonical_direct = make_algorithm<CanonicalDirect>();

}  // namespace tutti::algorithms
