// SPDX-License-Identifier: Apache-2.0
//
// canonical_halving: at each node of the canonical tree (canonical.hpp) the two halves exchange parts of what they have,
// so that the sum of a node is spread evenly over its ranks.
//
// all_reduce       n pieces of the block, then the same backwards as an all-gather:
//                  2 ceil(log2 n) a + 2(n-1)/n N/B. The fewest bytes of all ranks together; the busiest rank sends up
//                  to a quarter more unless n is a power of two
// reduce           the pieces go straight to the root: ceil(log2 n) a + 2(n-1)/n N/B
// reduce_scatter   ceil(log2 n) a + (n-1) N/B for blocks of N bytes; also with unequal blocks
//
// With a power of two this is recursive halving with the nearest partner first (Rabenseifner 2004 takes the farthest
// first). Otherwise a rank of the upper half, which is shorter, hands over its pieces to several ranks: up to n-1
// messages in a round. A reduce_scatter copies its blocks to scratch in the order of canonical_owners() first.
#include <tutti/sdk/algorithm.hpp>
#include <utility>

#include "algorithms.hpp"
#include "canonical.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

class Halving {
 public:
  Halving(const Query& q, Schedule& s) : q_(q), s_(s), spreads_(canonical_spreads(q.n, q.rank)) {}

  void all_reduce() {
    s_.cut_equally(q_.n);
    Lane lane = s_.lane();
    const auto place = [](uint32_t first, uint32_t count) { return out(first, count); };
    reduce(lane, place, place);
    const uint32_t highest = ceil_log2(q_.n);
    for (auto spread = spreads_.rbegin(); spread != spreads_.rend(); ++spread) {
      lane.level(2 * highest + 1 - spread->level);
      lane.send(spread->own.peer, out(spread->own.first, spread->own.count));
      for (const CanonicalPart& part : spread->away) lane.recv(part.peer, out(part.first, part.count));
    }
  }

  void reduce_to_root() {
    s_.cut_equally(q_.n);
    std::vector<tutti_extent> pieces(q_.n);
    for (uint32_t i = 0; i < pieces.size(); ++i) pieces[i].piece = i;
    s_.declare_scratch(pieces);
    Lane lane = s_.lane();
    // Not in the root's OUT: others have none, so what is sent from it could not be read in place.
    const auto place = [](uint32_t first, uint32_t count) { return scratch(first, count); };
    reduce(lane, place, [&](uint32_t first, uint32_t count) {
      return q_.is_root() ? out(first, count) : place(first, count);
    });
    lane.level(ceil_log2(q_.n) + 1);
    const CanonicalPart& own = spreads_.back().own;
    if (!q_.is_root()) return void(lane.send(q_.root, place(own.first, own.count)));
    const std::vector<uint32_t> owners = canonical_owners(q_.n);
    for (uint32_t i = 0; i < q_.n; ++i)
      if (owners[i] != q_.root) lane.recv(owners[i], out(i));
  }

  void reduce_scatter() {
    const std::vector<uint32_t> owners = canonical_owners(q_.n);
    std::vector<tutti_extent> blocks(q_.n);
    for (uint32_t i = 0; i < q_.n; ++i) blocks[i].block_class = q_.class_of(owners[i]);
    s_.declare_scratch(blocks);
    Lane lane = s_.lane().level(1);
    for (uint32_t i = 0; i < q_.n; ++i) lane.copy(scratch(i), in(owners[i]));
    copied_ = true;
    const auto place = [](uint32_t first, uint32_t count) { return scratch(first, count); };
    reduce(lane, place, [](uint32_t, uint32_t) { return out(); });
  }

 private:
  // Partial results are at `place`, the last one at `end`; in the first exchange they are IN's unless it was copied
  // to `place`.
  template <typename Place, typename End>
  void reduce(Lane lane, Place place, End end) {
    for (const CanonicalSpread& spread : spreads_) {
      const bool first = &spread == &spreads_.front(), last = &spread == &spreads_.back();
      const auto source = [&](const CanonicalPart& part) {
        return first && !copied_ ? in(part.first, part.count) : place(part.first, part.count);
      };
      lane.level(spread.level + (copied_ ? 1 : 0));
      for (const CanonicalPart& part : spread.away) lane.send(part.peer, source(part));
      const auto [begin, count] = std::pair(spread.own.first, spread.own.count);
      const tutti_span result = last ? end(begin, count) : place(begin, count);
      auto step = lane.recv_reduce(spread.own.peer, result, source(spread.own)).incoming_left(spread.from_lower);
      if (last) step.final();
    }
  }

  const Query& q_;
  Schedule& s_;
  const std::vector<CanonicalSpread> spreads_;
  bool copied_ = false;
};

struct CanonicalHalving {
  static constexpr const char* name = "canonical_halving";
  static constexpr const char* summary = "halves of the canonical tree exchange parts: few rounds, the fewest bytes";
  static constexpr uint64_t collectives =
      mask({TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_REDUCE_SCATTER, TUTTI_REDUCE_SCATTER_V});
  static void schedule(const Query& q, Schedule& s) {
    // The first message to a rank and the last one, which goes the other way round, are so many rounds apart.
    s.sliced(2 * ceil_log2(q.n) + 1);
    if (alone(q, s)) return;
    Halving halving(q, s);
    if (q.collective == TUTTI_ALL_REDUCE) return halving.all_reduce();
    if (q.collective == TUTTI_REDUCE) return halving.reduce_to_root();
    halving.reduce_scatter();
  }
};
}  // namespace

const tutti_algorithm canonical_halving = make_algorithm<CanonicalHalving>();

}  // namespace tutti::algorithms
