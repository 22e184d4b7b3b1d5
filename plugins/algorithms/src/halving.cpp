// SPDX-License-Identifier: Apache-2.0
//
// halving: all_reduce as a reduce-scatter by halving and an all-gather by doubling, over n pieces of the block.
//
// 2 ceil(log2 n) a + 2(n-1)/n N/B: the fewest bytes, as the ring, in logarithmic time, for messages between the
// smallest and the largest. The idea is Rabenseifner's ("Optimization of collective reduction operations", 2004); where
// his algorithm folds the ranks beyond a power of two into the others, which costs up to two times the bytes, the
// cyclic pattern of cyclic.hpp takes any n as it is. Each piece is completed at one rank and copied: equal bits
// everywhere.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "cyclic.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

struct Halving {
  static constexpr const char* name = "halving";
  static constexpr const char* summary =
      "reduce-scatter by halving, all-gather by doubling: few rounds, the fewest bytes";
  static constexpr uint64_t collectives = mask({TUTTI_ALL_REDUCE});
  static void schedule(const Query& q, Schedule& s) {
    // The last rank that is sent to is often the first one again.
    s.sliced(std::max(2 * ceil_log2(q.n), 2u) - 1);
    if (alone(q, s)) return;
    s.cut_equally(q.n);
    std::vector<tutti_extent> partials(halving_scratch(q.n));
    for (uint32_t j = 0; j < partials.size(); ++j) partials[j].piece = q.next(j);
    s.declare_scratch(partials);
    Lane lane = s.lane();
    reduce_scatter_by_halving(q, lane, out(q.rank));
    all_gather_by_doubling(q, lane, ceil_log2(q.n));
  }
};
}  // namespace

const tutti_algorithm halving = make_algorithm<Halving>();

}  // namespace tutti::algorithms
