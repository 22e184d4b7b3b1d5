// SPDX-License-Identifier: Apache-2.0
//
// hillis_steele: in round k each rank sends what it has to the rank 2^k behind it (Hillis and Steele, "Data parallel
// algorithms", 1986).
//
// scan   After round k rank r has the sum of ranks r - 2^(k+1) + 1 ... r, those below 0 left out: ceil(log2 n) rounds,
//        ceil(log2 n)(a + N/B). The fewest rounds, and one reduction in each; but a rank sends its whole block in all
//        of them.
//
// Operands are in rank order. A partial result may not change while it is being sent: it moves between OUT and scratch
// in the rounds in which its rank sends.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

void scan(const Query& q, Schedule& s) {
  if (q.rank > 0 && q.rank + 1 < q.n) s.declare_scratch(1);
  Lane lane = s.lane();
  // Rounds in which this rank receives, and those of them in which it sends, too, which come first. After these its sum
  // moves no more, so that it is in OUT if it has begun on the right side.
  const uint32_t receives = static_cast<uint32_t>(std::bit_width(q.rank));
  uint32_t moves = 0;
  while (moves < receives && q.rank + (1u << moves) < q.n) ++moves;
  bool to_out = !q.in_place && moves % 2 == 1;
  tutti_span sum = in();
  uint32_t level = 0;
  for (uint32_t distance = 1; distance < q.n; distance *= 2) {
    const bool sends = q.rank + distance < q.n, hears = q.rank >= distance;
    lane.level(++level);
    if (sends) lane.send(q.rank + distance, sum);
    if (!hears) continue;
    const tutti_span next = !sends || to_out ? out() : scratch();
    auto step = lane.recv_reduce(q.rank - distance, next, sum).incoming_left();
    const bool last = q.rank < 2 * distance, sends_on = q.rank + 2 * distance < q.n;
    if (last && !sends_on && next.buffer == TUTTI_BUFFER_OUT) return void(step.final());
    sum = next;
    to_out = !to_out;
  }
  lane.level(++level).copy(out(), sum).final();
}

struct HillisSteele {
  static constexpr const char* name = "hillis_steele";
  static constexpr const char* summary = "an inclusive scan by doubling distances: the fewest rounds";
  static constexpr uint64_t collectives = mask({TUTTI_SCAN});
  static void schedule(const Query& q, Schedule& s) {
    s.sliced(1);  // one message from each rank to each other
    if (!alone(q, s)) scan(q, s);
  }
};
}  // namespace

const tutti_algorithm hillis_steele = make_algorithm<HillisSteele>();

}  // namespace tutti::algorithms
