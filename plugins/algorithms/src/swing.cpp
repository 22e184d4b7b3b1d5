// SPDX-License-Identifier: Apache-2.0
//
// swing: partners lie on the two sides of a rank by turns and so nearer than those of halving and doubling (De Sensi et
// al., "Swing: short-cutting rings for higher bandwidth allreduce", NSDI 2024).
//
// In round s rank r talks to r + d(s) if r is even and to r - d(s) if it is odd, where d(s) = 1, -1, 3, -5, 11, ... =
// (1 - (-2)^(s+1)) / 3. Partners are at an odd distance, so n must be even; any even n serves. L = ceil(log2 n).
//
// all_gather      The far rounds come first: s = L-1 ... 0. In each a rank gives its partner all that this does not
// have
//                 yet. So half of the bytes go to a neighbour, a quarter to the other one, and few go far:
//                 L a + (n-1) N/B for blocks of N bytes, the fewest bytes. n is a power of two: one message per round.
// reduce_scatter  The same backwards, the near rounds first: a partial sum leaves where its block came in.
// all_reduce      Both, over n pieces of the block: 2 L a + 2 (n-1)/n N/B. Each piece is completed at one rank and
//                 copied: equal bits everywhere.
//
// Blocks are held in scratch in the order in which an all_gather gets them: what comes in a round lies side by side,
// and what is sent is nearly all that is there. n blocks of scratch, and a copy of each.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

struct Round {
  uint32_t partner;
  uint32_t arrives;        // the first place of what comes
  std::vector<Run> parts;  // what is sent: places; `offset` counts from the first one that is
};

// The rounds of one rank's all_gather, and which block is in which place. Place 0 is the rank's own.
struct Swinging {
  explicit Swinging(const Query& q) : blocks{q.rank} {
    const auto n = static_cast<int64_t>(q.n);
    const bool even = q.rank % 2 == 0;
    const auto moved = [&](uint32_t rank, int64_t by) { return static_cast<uint32_t>(((rank + by) % n + n) % n); };
    std::vector<bool> here(q.n, false);  // blocks, by their distance behind an even rank, before an odd one
    std::vector<int64_t> distances{0};
    here[0] = true;
    for (uint32_t s = ceil_log2(q.n); s-- > 0;) {
      const int64_t power = int64_t{2} << s, d = (s % 2 == 0 ? 1 + power : 1 - power) / 3;
      Round round{moved(q.rank, even ? d : -d), static_cast<uint32_t>(blocks.size()), {}};
      // The partner's block at distance x is at d - x from here; so it is with this rank's for the partner.
      for (uint32_t place = 0; place < round.arrives; ++place) {
        const int64_t distance = ((d - distances[place]) % n + n) % n;
        if (here[static_cast<size_t>(distance)]) continue;
        here[static_cast<size_t>(distance)] = true;
        if (round.parts.empty() || round.parts.back().first + round.parts.back().count != place)
          round.parts.push_back({place, 0, static_cast<uint32_t>(blocks.size()) - round.arrives});
        ++round.parts.back().count;
        distances.push_back(distance);
        blocks.push_back(moved(q.rank, even ? distance : -distance));
      }
      rounds.push_back(std::move(round));
    }
  }
  uint32_t levels() const { return static_cast<uint32_t>(rounds.size()); }

  std::vector<uint32_t> blocks;
  std::vector<Round> rounds;
};

// Steps are of the levels above `below`. The own block is in `own`, later in its place.
void gather_rounds(const Swinging& swing, Lane lane, uint32_t below, tutti_span own) {
  for (const Round& round : swing.rounds) {
    lane.level(++below);
    for (const Run& part : round.parts) {
      lane.send(round.partner, round.arrives == 1 ? own : scratch(part.first, part.count));
      lane.recv(round.partner, scratch(round.arrives + part.offset, part.count));
    }
  }
}

// All places hold this rank's values. The complete own block goes to `result`.
void reduce_rounds(const Swinging& swing, Lane lane, uint32_t below, tutti_span result) {
  for (size_t i = swing.rounds.size(); i-- > 0;) {
    const Round& round = swing.rounds[i];
    lane.level(++below);
    for (const Run& part : round.parts) {
      const tutti_span sum = scratch(part.first, part.count);
      lane.send(round.partner, scratch(round.arrives + part.offset, part.count));
      auto step = lane.recv_reduce(round.partner, i == 0 ? result : sum, sum);
      if (i == 0) step.final();
    }
  }
}

struct Swing {
  static constexpr const char* name = "swing";
  static constexpr const char* summary = "partners on both sides by turns: logarithmic, few bytes go far, even n";
  static constexpr uint64_t collectives =
      mask({TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER_V, TUTTI_REDUCE_SCATTER_V});
  static std::string supports(const Query& q) {
    if (q.n == 1 || q.n % 2 == 0) return "";
    return "needs an even number of ranks, there are " + std::to_string(q.n);
  }
  static void schedule(const Query& q, Schedule& s) {
    const bool whole = q.collective == TUTTI_ALL_REDUCE, reduces = q.reducing();
    s.sliced(2 * ceil_log2(q.n) + 2);  // partners come again
    if (alone(q, s)) return;
    const Swinging swing(q);
    if (whole) s.cut_equally(q.n);
    std::vector<tutti_extent> places(q.n);
    for (uint32_t i = 0; i < q.n; ++i)
      places[i] = whole ? tutti_extent{0, swing.blocks[i]} : tutti_extent{q.class_of(swing.blocks[i]), 0};
    s.declare_scratch(places);
    Lane lane = s.lane().level(1);
    for (uint32_t i = 0; i < q.n && reduces; ++i) lane.copy(scratch(i), in(swing.blocks[i]));
    if (reduces) reduce_rounds(swing, lane, 1, whole ? scratch(0) : out());
    if (reduces && !whole) return;
    const uint32_t below = whole ? 1 + swing.levels() : 0;
    if (!whole) lane.copy(scratch(0), in());
    gather_rounds(swing, lane, below, whole ? scratch(0) : in());
    lane.level(below + swing.levels() + 1);
    for (uint32_t i = !whole && q.in_place ? 1 : 0; i < q.n; ++i) lane.copy(out(swing.blocks[i]), scratch(i));
  }
};
}  // namespace

const tutti_algorithm swing = make_algorithm<Swing>();

}  // namespace tutti::algorithms
