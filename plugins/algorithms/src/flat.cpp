// SPDX-License-Identifier: Apache-2.0
//
// flat: each result is reduced in one step, from the contributions of all ranks in rank order, and then only moved.
// Nothing is rounded in between (Proof::flat), as exact sums require.
//
// all_reduce      2(n-1)/n N/B + 2(n-1) a, or 2 a where links are many: the block is cut into n pieces. Rank p gets
//                 piece p of every rank, reduces it, and sends the result to all.
// reduce_scatter  (n-1)(a + N/B) for blocks of N bytes, or a where links are many; also with unequal blocks
// reduce          The same pieces, whose results go to the root: 2(n-1)/n N/B + 2(n-1) a. Small blocks go to the root
// as
//                 a whole: (n-1)(a + N/B).
// scans           Every rank sends its block to all above: (n-1)(a + N/B) at the last one.
//
// Scratch is n-1 pieces, or blocks where these are whole. In slices there are two copies of it: a slice is reduced
// while it is in the cache. For small blocks the all_reduce of `direct` is flat, too, and takes one round.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

constexpr uint32_t copies = 2;
// Where all blocks of a reduce have at most so many bytes it costs its messages, and whole blocks are the fewest of
// them.
constexpr uint64_t small_blocks = 512 << 10;

struct Flat {
  static constexpr const char* name = "flat";
  static constexpr const char* summary = "one reduction of all contributions: nothing is rounded in between";
  static constexpr uint64_t collectives = mask(
      {TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_REDUCE_SCATTER_V, TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN});

  // Sends chunk p of IN to each other rank p. Returns the chunks `rank` of all, in rank order, in levels below n.
  static std::vector<tutti_span> exchange(const Query& q, Lane lane) {
    std::vector<tutti_span> values(q.n, in(q.rank));
    for (uint32_t k = 1; k < q.n; ++k) {
      lane.level(k).send(q.next(k), in(q.next(k)));
      lane.recv(q.prev(k), scratch(k - 1));
      values[q.prev(k)] = scratch(k - 1);
    }
    return values;
  }

  static void all_reduce(const Query& q, Lane lane) {
    const std::vector<tutti_span> values = exchange(q, lane);
    lane.level(q.n).reduce(out(q.rank), values).final();
    for (uint32_t k = 1; k < q.n; ++k) {
      lane.level(q.n + k).send(q.next(k), out(q.rank));
      lane.recv(q.prev(k), out(q.prev(k)));
    }
  }

  // How many places behind this rank the root is.
  static uint32_t to_root(const Query& q) { return q.n - q.relative(); }

  // Only the root has OUT.
  static void reduce(const Query& q, Lane lane) {
    const tutti_span result = q.is_root() ? out(q.rank) : scratch(0);
    const std::vector<tutti_span> values = exchange(q, lane);
    lane.level(q.n).reduce(result, values).final();
    if (!q.is_root()) return void(lane.level(q.n + to_root(q)).send(q.root, result));
    for (uint32_t k = 1; k < q.n; ++k) lane.level(q.n + k).recv(q.prev(k), out(q.prev(k)));
  }

  static void reduce_whole(const Query& q, Lane lane) {
    if (!q.is_root()) return void(lane.level(to_root(q)).send(q.root, in()));
    std::vector<tutti_span> values(q.n, in());
    for (uint32_t k = 1; k < q.n; ++k) {
      lane.level(k).recv(q.prev(k), scratch(k - 1));
      values[q.prev(k)] = scratch(k - 1);
    }
    lane.level(q.n).reduce(out(), values).final();
  }

  static void scan(const Query& q, Lane lane) {
    std::vector<tutti_span> values;
    for (uint32_t k = 1; k < q.n; ++k) {
      lane.level(k);
      if (q.rank + k < q.n) lane.send(q.rank + k, in());
      if (k <= q.rank) lane.recv(q.rank - k, scratch(q.rank - k));
    }
    for (uint32_t rank = 0; rank < q.rank; ++rank) values.push_back(scratch(rank));
    if (q.collective == TUTTI_SCAN) values.push_back(in());
    lane.level(q.n);
    if (values.size() > 1)
      lane.reduce(out(), values).final();
    else if (!values.empty())
      lane.copy(out(), values[0]).final();
  }

  static void schedule(const Query& q, Schedule& s) {
    const bool scans = q.collective == TUTTI_SCAN || q.collective == TUTTI_EXCLUSIVE_SCAN;
    const bool whole = q.collective == TUTTI_REDUCE && q.block_bytes > 0 && q.block_bytes <= small_blocks / q.n;
    const bool in_pieces = !whole && (q.collective == TUTTI_REDUCE || q.collective == TUTTI_ALL_REDUCE);
    s.sliced(q.n);
    if (alone(q, s)) return;
    if (in_pieces) s.cut_equally(q.n);
    const uint32_t chunks = scans ? q.rank : whole && !q.is_root() ? 0 : q.n - 1;
    const tutti_extent extent = in_pieces ? tutti_extent{0, q.rank} : tutti_extent{q.class_of(q.rank), 0};
    s.declare_scratch(std::vector<tutti_extent>(chunks, extent), copies);
    if (scans) return scan(q, s.lane());
    if (whole) return reduce_whole(q, s.lane());
    if (q.collective == TUTTI_REDUCE) return reduce(q, s.lane());
    if (q.collective == TUTTI_ALL_REDUCE) return all_reduce(q, s.lane());
    Lane lane = s.lane();
    const std::vector<tutti_span> values = exchange(q, lane);
    lane.level(q.n).reduce(out(), values).final();
  }
};
}  // namespace

const tutti_algorithm flat = make_algorithm<Flat>();

}  // namespace tutti::algorithms
