// SPDX-License-Identifier: Apache-2.0
//
// pairwise: all_to_all in which in each round pairs of ranks exchange their blocks.
//
// In round k = 0 ... n-1 ranks r and p with r + p = k mod n are a pair, so that each two ranks meet once; a rank that
// would meet itself rests. n (a + N/B) for blocks of N bytes: the time of `direct`, but a rank talks to one other at a
// time, in both directions, and in place two blocks of scratch are enough, since the block that arrives takes the place
// of the one that leaves to the same rank.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

struct Pairwise {
  static constexpr const char* name = "pairwise";
  static constexpr const char* summary =
      "pairs exchange blocks, one pair at a time for each rank: little scratch in place";
  static constexpr uint64_t collectives = mask({TUTTI_ALL_TO_ALL});
  static void schedule(const Query& q, Schedule& s) {
    s.sliced(1);  // one message from each rank to each other
    if (alone(q, s)) return;
    if (q.in_place) s.declare_scratch(2);
    Lane lane = s.lane().level(1);
    if (!q.in_place) lane.copy(out(q.rank), in(q.rank));
    for (uint32_t k = 0; k < q.n; ++k) {
      const uint32_t peer = q.wrap(k + q.n - q.rank);
      if (peer == q.rank) continue;
      const tutti_span arrives = q.in_place ? scratch(k % 2) : out(peer);
      lane.level(2 * k + 1).send(peer, in(peer));
      lane.recv(peer, arrives);
      if (q.in_place) lane.level(2 * k + 2).copy(out(peer), arrives);
    }
  }
};
}  // namespace

const tutti_algorithm pairwise = make_algorithm<Pairwise>();

}  // namespace tutti::algorithms
