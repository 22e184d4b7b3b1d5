// SPDX-License-Identifier: Apache-2.0
//
// exclusive_doubling: recursive doubling in which each rank keeps the sum of its group and the part of it that lies
// before the rank.
//
// exclusive_scan  In round k a rank exchanges its group's sum with the rank whose number differs in bit k: ceil(log2 n)
//                 rounds, ceil(log2 n)(a + N/B), at most two reductions in each. What comes from below is added to both
//                 sums, what comes from above to the group's alone, and is not sent where nobody uses that sum any
//                 more. Where n is no power of two a rank may have no partner in a round: it misses nothing, since its
//                 group is the last one.
//
// As MPI_Exscan in MPICH; Sanders and Traeff, "Parallel prefix (scan) algorithms for MPI" (2006). Operands are in rank
// order: a group is a run of ranks. The group's sum may not change while it is being sent: it alternates between two
// chunks of scratch.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

// Does a rank use what its partner in the round of `bit` has? For its result, or for a sum that it sends later.
bool hears(uint32_t n, uint32_t rank, uint32_t bit);
bool sends(uint32_t n, uint32_t rank, uint32_t bit) { return (rank ^ bit) < n && hears(n, rank ^ bit, bit); }
bool sends_after(uint32_t n, uint32_t rank, uint32_t bit) {
  for (bit *= 2; bit < n; bit *= 2)
    if (sends(n, rank, bit)) return true;
  return false;
}
bool hears(uint32_t n, uint32_t rank, uint32_t bit) {
  return (rank ^ bit) < n && ((rank & bit) || sends_after(n, rank, bit));
}

void exclusive_scan(const Query& q, Schedule& s) {
  s.declare_scratch(3);
  const tutti_span came = scratch(2);
  Lane lane = s.lane();
  tutti_span group = in();
  uint32_t turn = 0, level = 1;
  bool any_before = false;
  for (uint32_t bit = 1; bit < q.n; bit *= 2, level += 3) {
    const uint32_t partner = q.rank ^ bit;
    lane.level(level);
    if (sends(q.n, q.rank, bit)) lane.send(partner, group);
    if (!hears(q.n, q.rank, bit)) continue;
    const bool grows = sends_after(q.n, q.rank, bit);
    const tutti_span next = scratch(turn);
    if (partner < q.rank) {
      lane.recv(partner, came);
      if (grows) lane.level(level + 1).reduce(next, {came, group});
      lane.level(level + 2);  // in place nothing reads IN any more only now
      auto step = any_before ? lane.reduce(out(), {came, out()}) : lane.copy(out(), came);
      if (q.rank < 2 * bit) step.final();
      any_before = true;
    } else {
      lane.recv_reduce(partner, next, group);
    }
    if (!grows) continue;
    group = next;
    turn = 1 - turn;
  }
}

struct ExclusiveDoubling {
  static constexpr const char* name = "exclusive_doubling";
  static constexpr const char* summary = "an exclusive scan by recursive doubling: the fewest rounds";
  static constexpr uint64_t collectives = mask({TUTTI_EXCLUSIVE_SCAN});
  static void schedule(const Query& q, Schedule& s) {
    s.sliced(1);  // one message from each rank to each other
    if (!alone(q, s)) exclusive_scan(q, s);
  }
};
}  // namespace

const tutti_algorithm exclusive_doubling = make_algorithm<ExclusiveDoubling>();

}  // namespace tutti::algorithms
