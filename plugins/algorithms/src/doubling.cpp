// SPDX-License-Identifier: Apache-2.0
//
// doubling: in each round twice as many ranks know of each other; ceil(log2 n) rounds.
//
// all_reduce      Recursive doubling of the whole block: in round k a rank exchanges its partial result with the rank
// whose number
//                 differs in bit k, and both compute the same sum, lower ranks left: log2 n (a + N/B). When n is no
//                 power of two, p the next lower one, the first 2(n-p) ranks pair up: the even one hands its input to
//                 the odd one, which takes part for both, and gets the result back: two rounds more. Rank order; equal
//                 bits everywhere. A partial result may not change while it is being sent: it moves between OUT and
//                 scratch, and ends in OUT.
// all_gather      ceil(log2 n) a + (n-1) N/B for blocks of N bytes, any n (cyclic.hpp).
// reduce_scatter  The same backwards, by halving.
// barrier         Dissemination (Hensgen, Finkel, Manber 1988): in round k rank r signals r + 2^k and hears r - 2^k.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "cyclic.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

void all_reduce(const Query& q, Schedule& s) {
  const uint32_t power = std::bit_floor(q.n), extra = q.n - power;
  const bool paired = q.rank < 2 * extra, hands_over = paired && q.rank % 2 == 0;
  if (!hands_over) s.declare_scratch(1);
  Lane lane = s.lane();
  const uint32_t rounds = static_cast<uint32_t>(std::countr_zero(power));
  if (hands_over) {
    lane.level(1).send(q.rank + 1, in());
    lane.level(rounds + 3).recv(q.rank + 1, out());
    return;
  }
  const uint32_t place = paired ? q.rank / 2 : q.rank - extra;  // among the `power` ranks that take part
  const auto rank_at = [&](uint32_t p) { return p < extra ? 2 * p + 1 : p + extra; };

  // The sum sits at `sum` and moves to the other of OUT and scratch in each round: begin so that it ends in OUT, unless
  // OUT is where it begins because it is the input, still to be sent.
  bool to_out = rounds % 2 == 1;
  tutti_span sum = in();
  if (paired) {
    sum = to_out ? scratch() : out();
    lane.level(1).recv_reduce(q.rank - 1, sum, in()).incoming_left();
  } else if (q.in_place) {
    to_out = false;
  }
  uint32_t level = 1;
  for (uint32_t bit = 1; bit < power; bit *= 2, to_out = !to_out) {
    const uint32_t peer = rank_at(place ^ bit);
    const tutti_span next = to_out ? out() : scratch();
    lane.level(++level).send(peer, sum);
    auto step = lane.recv_reduce(peer, next, sum).incoming_left(peer < q.rank);
    if (bit == power / 2 && to_out) step.final();
    sum = next;
  }
  if (sum.buffer != TUTTI_BUFFER_OUT) lane.level(rounds + 2).copy(out(), sum).final();
  if (paired) lane.level(rounds + 3).send(q.rank - 1, out());
}

void all_gather(const Query& q, Schedule& s) {
  Lane lane = s.lane().level(1);
  lane.send(q.prev(), in());
  lane.recv(q.next(), out(q.next()));
  if (!q.in_place) lane.copy(out(q.rank), in());
  all_gather_by_doubling(q, lane, 1, 2);
}

void barrier(const Query& q, Schedule& s) {
  // Signals touch no chunk: only the way over a second lane puts them in order.
  Lane lane = s.lane(0), relay = s.lane(1);
  StepId heard;
  uint32_t level = 0;
  for (uint32_t distance = 1; distance < q.n; distance *= 2) {
    lane.level(++level).signal(q.next(distance)).after(heard);
    const StepId came = lane.wait(q.prev(distance)).after(heard);
    heard = relay.level(++level).nop().after(came);
  }
}

// Partial results of this rank's block and those behind it.
void declare_partials(const Query& q, Schedule& s) {
  std::vector<tutti_extent> partials(halving_scratch(q.n));
  for (uint32_t j = 0; j < partials.size(); ++j) partials[j].block_class = q.class_of(q.next(j));
  s.declare_scratch(partials);
}

struct Doubling {
  static constexpr const char* name = "doubling";
  static constexpr const char* summary = "recursive doubling: the fewest rounds";
  static constexpr uint64_t collectives = mask({TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER, TUTTI_BARRIER,
                                                TUTTI_ALL_GATHER_V, TUTTI_REDUCE_SCATTER_V});
  static std::string supports(const Query& q) {
    return q.collective == TUTTI_BARRIER && q.lanes < 2 ? "needs 2 lanes, there is 1" : "";
  }
  static void schedule(const Query& q, Schedule& s) {
    // One message from each rank to each other. Over TCP slices of a reduce-scatter cost more than they hide.
    if (q.form() != TUTTI_REDUCE_SCATTER) s.sliced(1);
    if (alone(q, s)) return;
    switch (q.form()) {
      case TUTTI_ALL_REDUCE:
        return all_reduce(q, s);
      case TUTTI_ALL_GATHER:
        return all_gather(q, s);
      case TUTTI_REDUCE_SCATTER:
        declare_partials(q, s);
        return reduce_scatter_by_halving(q, s.lane(), out());
      case TUTTI_BARRIER:
        return barrier(q, s);
    }
  }
};
}  // namespace

const tutti_algorithm doubling = make_algorithm<Doubling>();

}  // namespace tutti::algorithms
