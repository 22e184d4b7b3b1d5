// SPDX-License-Identifier: Apache-2.0
//
// pat: parallel aggregated trees (Jeaugey, "PAT: a new algorithm for all-gather and reduce-scatter operations at
// scale", 2025; in NCCL since 2.23).
//
// all_gather      The block of rank s goes down a binomial tree to ranks s+d: it reaches distance d from d without its
//                 lowest set bit, so the far steps come first. All n trees run at once, moved around the ring, and the
//                 messages of a step from one rank to another are one, of at most A blocks. As long as a rank holds at
//                 most A blocks, it sends all of them on: far steps, each for twice as many blocks. From then on these
//                 blocks go down what is left of their trees together, depth first. With A >= n that is ceil(log2 n)
//                 messages; with M = n/A about log2 A + M - 1:
//                 (log2 A + M - 1) a + (n-1) N/B for blocks of N bytes, the fewest bytes.
//                 Half of the bytes go to the next rank, a quarter to the one after it, and few go far: `doubling`
//                 sends half of them n/2 ranks away.
// reduce_scatter  The same backwards: partial sums go up the trees, the near steps first.
//
// Scratch: A blocks and A more for each level of what is left of the trees, A (1 + log2 M); for A = 1 all_gather needs
// none, reduce_scatter log2 n - 1. "pat:A" sets A. Without, a message is of at most 64 KiB, or one block.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "parameters.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

// The most blocks of a message: what the parameters say; 0: they say nothing sensible.
uint32_t aggregation(const Query& q) {
  constexpr uint64_t message_bytes = 64 << 10;
  constexpr uint32_t most = 65536;
  const uint64_t by_size = q.block_bytes == 0 ? most : std::max<uint64_t>(1, message_bytes / q.block_bytes);
  return number_behind_name(q, static_cast<uint32_t>(by_size), 1, most);
}

// A far step: `count` blocks from place `first` go `distance` ranks on, into the places from `arrives` on.
struct FarStep {
  uint32_t distance, first, count, arrives;
};

// The blocks that a rank holds after the far steps, by their distance: multiples of `unit`, which lie in scratch in
// such an order that the largest comes last. It is the only one that a step may have to leave out (it has no rank to go
// to where the distance would pass n), so what is sent is always one run. Then follow the near steps e = 1 ... unit -
// 1: all blocks that have gone d get to d + e.
struct Trees {
  Trees(uint32_t ranks, uint32_t most) : n(ranks), unit(std::bit_ceil(ranks)), distances{0} {
    for (uint32_t half = unit / 2; half > 0; half /= 2) {
      const auto have = static_cast<uint32_t>(distances.size());
      const uint32_t sent = have - (distances.back() + half >= n);
      if (have + sent > most) break;
      std::vector<uint32_t> further(distances.begin(), distances.begin() + sent);
      for (uint32_t& distance : further) distance += half;
      const bool in_front = sent < have;
      for (FarStep& step : far) {  // all moves back
        step.first += in_front ? sent : 0;
        step.arrives += in_front ? sent : 0;
      }
      own += in_front ? sent : 0;
      far.push_back({half, in_front ? sent : 0, sent, in_front ? 0 : have});
      distances.insert(in_front ? distances.begin() : distances.end(), further.begin(), further.end());
      unit = half;
    }
  }
  uint32_t held() const { return static_cast<uint32_t>(distances.size()); }
  bool aggregates() const { return held() > 1; }
  // Blocks that near step e moves, and where it takes them from.
  uint32_t count(uint32_t e) const { return held() - (distances.back() + e >= n); }
  static uint32_t lowest_bit(uint32_t e) { return e & -e; }
  static uint32_t height(uint32_t e) { return static_cast<uint32_t>(std::countr_zero(e)); }
  // Levels that all steps may need.
  uint32_t levels() const { return static_cast<uint32_t>(far.size()) + 2 * unit + 2; }
  // Chunks of scratch of steps with aggregation: those that are held, and a place for each height.
  uint32_t places() const { return held() * (1 + height(unit)); }
  // The blocks of step e; e = 0: those that are held.
  tutti_span place(uint32_t e, uint32_t blocks) const { return scratch(e == 0 ? 0 : held() * (1 + height(e)), blocks); }

  uint32_t n, unit;
  std::vector<uint32_t> distances;
  std::vector<FarStep> far;
  uint32_t own = 0;  // the place of this rank's own block
};

void all_gather(const Query& q, Schedule& s, const Trees& trees) {
  if (trees.aggregates()) s.declare_scratch(trees.places());
  Lane lane = s.lane().level(1);
  if (trees.aggregates()) lane.copy(scratch(trees.own), in());
  if (!q.in_place) lane.copy(out(q.rank), in());
  uint32_t level = 0;
  for (const FarStep& step : trees.far) {
    lane.level(++level);
    lane.send(q.next(step.distance), level == 1 ? in() : scratch(step.first, step.count));
    lane.recv(q.prev(step.distance), scratch(step.arrives, step.count));
  }
  lane.level(++level);
  for (uint32_t i = 0; i < trees.held(); ++i)
    if (i != trees.own) lane.copy(out(q.prev(trees.distances[i])), scratch(i));
  for (uint32_t e = 1; e < trees.unit && trees.count(e) > 0; ++e) {
    const uint32_t distance = Trees::lowest_bit(e), count = trees.count(e), from = e - distance;
    lane.level(++level);
    if (!trees.aggregates()) {
      lane.send(q.next(distance), from == 0 ? in() : out(q.prev(from)));
      lane.recv(q.prev(distance), out(q.prev(e)));
      continue;
    }
    lane.send(q.next(distance), trees.place(from, count));
    lane.recv(q.prev(distance), trees.place(e, count));
    lane.level(++level);
    for (uint32_t i = 0; i < count; ++i)
      lane.copy(out(q.prev(trees.distances[i] + e)), scratch(trees.place(e, 1).first + i));
  }
}

// The near steps of a reduce_scatter backwards, with one block in each: sums of subtrees move through one chunk of
// scratch for each height.
void add_single(const Query& q, Schedule& s, const Trees& trees) {
  if (trees.n > 2) s.declare_scratch(Trees::height(trees.unit) - 1);
  Lane lane = s.lane();
  std::vector<bool> begun(trees.n, false);  // the sum of a node has more than its rank's own value
  const auto sum = [&](uint32_t e) {
    if (!begun[e]) return in(q.prev(e));
    return e == 0 ? out() : scratch(Trees::height(e) - 1);
  };
  for (uint32_t e = trees.n - 1; e > 0; --e) {
    const uint32_t distance = Trees::lowest_bit(e), to = e - distance;
    lane.level(trees.n - e).send(q.prev(distance), sum(e));
    const tutti_span before = sum(to);
    begun[to] = true;
    auto step = lane.recv_reduce(q.next(distance), sum(to), before);
    if (e == 1) step.final();
  }
}

void reduce_scatter(const Query& q, Schedule& s, const Trees& trees) {
  if (!trees.aggregates()) return add_single(q, s, trees);
  s.declare_scratch(trees.places());
  Lane lane = s.lane();
  uint32_t level = 1;
  const auto load = [&](uint32_t e) {
    lane.level(level);
    for (uint32_t i = 0; i < trees.count(e); ++i)
      lane.copy(scratch(trees.place(e, 1).first + i), in(q.prev(trees.distances[i] + e)));
  };
  load(0);
  for (uint32_t e = trees.unit - 1; e > 0; --e, level += 2) {
    const uint32_t distance = Trees::lowest_bit(e), to = e - distance;
    if (distance == 1) load(e);
    if (to > 0 && 2 * distance == Trees::lowest_bit(to)) load(to);  // its first child
    const tutti_span sum = trees.place(to, trees.count(e));
    lane.level(level + 1).send(q.prev(distance), trees.place(e, trees.count(e)));
    lane.recv_reduce(q.next(distance), sum, sum);
  }
  for (size_t i = trees.far.size(); i-- > 0;) {
    const FarStep& step = trees.far[i];
    const tutti_span sum = scratch(step.first, step.count);
    lane.level(++level).send(q.prev(step.distance), scratch(step.arrives, step.count));
    auto last = lane.recv_reduce(q.next(step.distance), i == 0 ? out() : sum, sum);
    if (i == 0) last.final();
  }
}

struct Pat {
  static constexpr const char* name = "pat";
  static constexpr const char* summary = "parallel aggregated trees: few messages for small blocks, few bytes go far";
  static constexpr uint64_t collectives = mask({TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER});
  static constexpr bool takes_parameters = true;
  static std::string supports(const Query& q) {
    if (aggregation(q)) return "";
    return "expected the most blocks of a message, 1 to 65536, behind the colon, got \"" + std::string(q.parameters) +
           "\"";
  }
  static void schedule(const Query& q, Schedule& s) {
    const Trees trees(q.n, aggregation(q));
    s.sliced(trees.levels());
    if (alone(q, s)) return;
    q.collective == TUTTI_ALL_GATHER ? all_gather(q, s, trees) : reduce_scatter(q, s, trees);
  }
};
}  // namespace

const tutti_algorithm pat = make_algorithm<Pat>();

}  // namespace tutti::algorithms
