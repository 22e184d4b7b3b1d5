// SPDX-License-Identifier: Apache-2.0
//
// ring: each rank sends to the next and receives from the one before.
//
// all_reduce     The block is cut into n pieces. A piece sets out at rank p, goes once around and is reduced into by
// every
//                rank that it passes; the last one, p - 1, completes it. Then the complete pieces go around once more.
//                At each of the 2(n-1) steps every rank sends one piece and receives one, so all links are busy:
//                2(n-1)a + 2(n-1)/n N/B, the fewest bytes possible (Patarasuk and Yuan, "Bandwidth optimal all-reduce
//                algorithms", 2009). Each piece is completed at one rank and copied, so all ranks get equal bits.
// reduce_scatter the first turn alone, over blocks: (n-1)(a + N/B) for blocks of N bytes, ending at their owners.
// all_gather     the second turn alone, over blocks; the same cost.
// broadcast      a chain from the root: in S slices (S + n - 2)(a + N/(S B)).
// reduce         a chain that ends at the root and is reduced into on the way; the same cost.
//
// A receive into X is followed by the send of X wherever X goes on, so that an executor can do both in one pass.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

void all_reduce(const Query& q, Schedule& s) {
  s.cut_equally(q.n);
  Lane lane = s.lane();
  lane.level(1).send(q.next(), in(q.rank));
  for (uint32_t k = 1; k < q.n; ++k) {  // the piece that set out k ranks before this one comes by
    const uint32_t piece = q.prev(k);
    auto step = lane.level(k).recv_reduce(q.prev(), out(piece), in(piece)).incoming_left();
    if (k == q.n - 1) step.final();
    lane.level(k + 1).send(q.next(), out(piece));
  }
  for (uint32_t k = 0; k + 1 < q.n; ++k) {
    const uint32_t piece = q.prev(k);
    lane.level(q.n + k).recv(q.prev(), out(piece));
    if (k + 2 < q.n) lane.level(q.n + k + 1).send(q.next(), out(piece));
  }
}

void reduce_scatter(const Query& q, Schedule& s) {
  // IN is not ours to write: partial blocks pass through two scratch chunks in turn, one arriving while one leaves.
  // Blocks of unequal sizes have a chunk each.
  std::vector<tutti_extent> partials(q.unequal() ? q.n - 2 : std::min(q.n - 2, 2u));
  for (uint32_t i = 0; i < partials.size(); ++i) partials[i].block_class = q.class_of(q.prev(i + 2));
  s.declare_scratch(partials);
  Lane lane = s.lane();
  lane.level(1).send(q.next(), in(q.prev()));
  for (uint32_t k = 2; k < q.n; ++k) {
    const tutti_span partial = scratch(q.unequal() ? k - 2 : k % 2);
    lane.level(k - 1).recv_reduce(q.prev(), partial, in(q.prev(k))).incoming_left();
    lane.level(k).send(q.next(), partial);
  }
  lane.level(q.n - 1).recv_reduce(q.prev(), out(), in(q.rank)).incoming_left().final();
}

void all_gather(const Query& q, Schedule& s) {
  Lane lane = s.lane();
  lane.level(1).send(q.next(), in());
  for (uint32_t k = 1; k < q.n; ++k) {
    lane.level(k).recv(q.prev(), out(q.prev(k)));
    if (k + 1 < q.n) lane.level(k + 1).send(q.next(), out(q.prev(k)));
  }
  if (!q.in_place) lane.copy(out(q.rank), in());
}

void broadcast(const Query& q, Schedule& s) {
  Lane lane = s.lane();
  const uint32_t place = q.relative();
  if (place > 0) lane.level(place).recv(q.prev(), out());
  lane.level(place + 1);
  if (place + 1 < q.n) lane.send(q.next(), place == 0 ? in() : out());
  if (place == 0 && !q.in_place) lane.copy(out(), in());
}

void reduce(const Query& q, Schedule& s) {
  const uint32_t place = q.is_root() ? q.n : q.relative();
  const bool first = place == 1;
  if (!first && !q.is_root()) s.declare_scratch(1);
  Lane lane = s.lane().level(place - 1);
  if (q.is_root()) {
    lane.recv_reduce(q.prev(), out(), in()).incoming_left().final();
  } else if (first) {
    lane.level(1).send(q.next(), in());
  } else {
    lane.recv_reduce(q.prev(), scratch(), in()).incoming_left();
    lane.level(place).send(q.next(), scratch());
  }
}

struct Ring {
  static constexpr const char* name = "ring";
  static constexpr const char* summary =
      "around a ring or along a chain: the fewest bytes, latency linear in the ranks";
  static constexpr uint64_t collectives = mask({TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER,
                                                TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER_V, TUTTI_REDUCE_SCATTER_V});
  static void schedule(const Query& q, Schedule& s) {
    // A message of the next slice follows the last one of this slice on the same way.
    const uint32_t turns = q.collective == TUTTI_ALL_REDUCE ? 2 : 1;
    const bool chain = q.collective == TUTTI_BROADCAST || q.collective == TUTTI_REDUCE;
    s.sliced(chain || q.n < 3 ? 1 : turns * (q.n - 1) - 1);
    if (alone(q, s)) return;
    switch (q.form()) {
      case TUTTI_BROADCAST:
        return broadcast(q, s);
      case TUTTI_REDUCE:
        return reduce(q, s);
      case TUTTI_ALL_REDUCE:
        return all_reduce(q, s);
      case TUTTI_ALL_GATHER:
        return all_gather(q, s);
      case TUTTI_REDUCE_SCATTER:
        return reduce_scatter(q, s);
    }
  }
};
}  // namespace

const tutti_algorithm ring = make_algorithm<Ring>();

}  // namespace tutti::algorithms
