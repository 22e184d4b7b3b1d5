// SPDX-License-Identifier: Apache-2.0
//
// chain: each rank receives the result of the ranks before it, adds its own input and hands it on.
//
// scan            n-1 messages one after another; in S slices (S + n - 2)(a + N/(S B)): nearly N/B for long blocks, and
//                 no rank sends more than its block, the fewest bytes. No scratch.
// exclusive_scan  The same. A rank needs what came (its result) and what goes on, so what came waits in scratch.
//
// The pipelined chain of MPI implementations; Sanders and Traeff, "Parallel prefix (scan) algorithms for MPI" (2006),
// compare it with doubling. Operands are in rank order.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

void scan(const Query& q, Schedule& s) {
  Lane lane = s.lane();
  const bool first = q.rank == 0, last = q.rank + 1 == q.n;
  if (!first) {
    auto step = lane.level(q.rank).recv_reduce(q.rank - 1, out(), in()).incoming_left();
    if (last) return void(step.final());
  }
  const tutti_span sum = first ? in() : out();
  lane.level(q.rank + 1).send(q.rank + 1, sum);
  lane.level(q.rank + 2).copy(out(), sum).final();  // not before it has left: avg divides here
}

// The message from rank r to the next one has level 2r + 1.
void exclusive_scan(const Query& q, Schedule& s) {
  const bool first = q.rank == 0, last = q.rank + 1 == q.n;
  if (!first && !last) s.declare_scratch(1);
  Lane lane = s.lane().level(1);
  if (first) return void(lane.send(1, in()));
  const tutti_span came = last ? out() : scratch();
  lane.level(2 * q.rank - 1).recv(q.rank - 1, came);
  if (!last) {
    lane.level(2 * q.rank).reduce(out(), {came, in()});
    lane.level(2 * q.rank + 1).send(q.rank + 1, out());
  }
  lane.level(2 * q.rank + 2).copy(out(), came).final();
}

struct Chain {
  static constexpr const char* name = "chain";
  static constexpr const char* summary = "from rank to rank: the fewest bytes, latency linear in the ranks";
  static constexpr uint64_t collectives = mask({TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN});
  static void schedule(const Query& q, Schedule& s) {
    s.sliced(1);  // one message from each rank
    if (alone(q, s)) return;
    q.collective == TUTTI_SCAN ? scan(q, s) : exclusive_scan(q, s);
  }
};
}  // namespace

const tutti_algorithm chain = make_algorithm<Chain>();

}  // namespace tutti::algorithms
