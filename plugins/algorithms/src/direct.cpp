// SPDX-License-Identifier: Apache-2.0
//
// direct: every message goes straight from the rank that has it to the rank that needs it.
//
// One message delay for everything, n-1 messages at the busiest rank: best for few ranks, for small messages between
// ranks at equal distance, and for all_to_all. In exchanges rank r sends to r+k while it receives from r-k, for k = 1
// ... n-1: at each k all ranks are paired one to one.
//
// all_reduce     Everybody sends its whole input to everybody and reduces by itself, in rank order, so that all ranks
// compute
//                the same expression: a + (n-1) N/B. ("One-shot.")
// reduce_scatter, all_gather, all_to_all   (n-1)(a + N/B) for blocks of N bytes, or a where links are many.
//                reduce_scatter has its operands in rank order, with one block of scratch.
// reduce         The root takes its own value, reduces into it leftward from the ranks below and rightward from those
// above:
//                operands in rank order, no scratch.
// `direct:P` an all_to_all in which a rank sends to at most P others at a time, and receives from as many: the P-th
// next
//                exchange waits for this one. Without, as many are in flight as an executor takes. 2 lanes.
// all_to_all in place: a block that arrives before the old one has left (k <= n/2) waits in scratch.
// v-forms        The same: a block goes straight from a rank that knows its size to another that does.
// barrier        Everybody signals everybody: one delay, n(n-1) signals.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "parameters.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

void broadcast(const Query& q, Schedule& s) {
  Lane lane = s.lane().level(1);
  if (!q.is_root()) return void(lane.recv(q.root, out()));
  for (uint32_t k = 1; k < q.n; ++k) lane.send(q.next(k), in());
  if (!q.in_place) lane.copy(out(), in());
}

void reduce(const Query& q, Schedule& s) {
  Lane lane = s.lane();
  if (!q.is_root()) return void(lane.level(q.rank < q.root ? q.root - q.rank : q.rank).send(q.root, in()));
  for (uint32_t k = 1; k < q.n; ++k) {
    const bool below = k <= q.root;
    auto step = lane.level(k).recv_reduce(below ? q.root - k : k, out(), k == 1 ? in() : out()).incoming_left(below);
    if (k + 1 == q.n) step.final();
  }
}

void all_reduce(const Query& q, Schedule& s) {
  // The values that arrived wait in scratch; only with two ranks out of place there is nothing to keep in order or
  // intact.
  const bool at_once = q.n == 2 && !q.in_place;
  if (!at_once) s.declare_scratch(q.n - 1);
  Lane lane = s.lane();
  for (uint32_t k = 1; k < q.n; ++k) {
    lane.level(k).send(q.next(k), in());
    if (at_once)
      lane.recv_reduce(q.prev(k), out(), in()).incoming_left(q.rank == 1).final();
    else
      lane.recv(q.prev(k), scratch(k - 1));
  }
  if (at_once) return;
  std::vector<tutti_span> values(q.n, in());
  for (uint32_t k = 1; k < q.n; ++k) values[q.prev(k)] = scratch(k - 1);
  lane.level(q.n).reduce(out(), values).final();
}

void gather(const Query& q, Schedule& s) {
  Lane lane = s.lane().level(1);
  if (!q.is_root()) return void(lane.send(q.root, in()));
  for (uint32_t k = 1; k < q.n; ++k) lane.recv(q.next(k), out(q.next(k)));
  if (!q.in_place) lane.copy(out(q.root), in());
}

void scatter(const Query& q, Schedule& s) {
  Lane lane = s.lane().level(1);
  if (!q.is_root()) return void(lane.recv(q.root, out()));
  for (uint32_t k = 1; k < q.n; ++k) lane.send(q.next(k), in(q.next(k)));
  if (!q.in_place) lane.copy(out(), in(q.root));
}

void all_gather(const Query& q, Schedule& s) {
  Lane lane = s.lane();
  for (uint32_t k = 1; k < q.n; ++k) {
    lane.level(k).send(q.next(k), in());
    lane.recv(q.prev(k), out(q.prev(k)));
  }
  if (!q.in_place) lane.copy(out(q.rank), in());
}

void reduce_scatter(const Query& q, Schedule& s) {
  // The ranks below come first, from this one's neighbour down to 0, then those above, from the last one down. Several
  // of these are combined in scratch, and then with the rest.
  const bool apart = q.rank + 2 < q.n;
  if (apart) s.declare_scratch(std::vector{tutti_extent{q.class_of(q.rank), 0}});
  Lane lane = s.lane();
  tutti_span sum = in(q.rank);
  for (uint32_t k = 1; k < q.n; ++k) {
    const bool below = k <= q.rank;
    lane.level(k).send(q.next(k), in(q.next(k)));
    if (below || !apart) {
      auto step = lane.recv_reduce(q.prev(k), out(), sum).incoming_left(below);
      sum = out();
      if (k + 1 == q.n) step.final();
    } else if (k == q.rank + 1) {
      lane.recv(q.prev(k), scratch());
    } else {
      lane.recv_reduce(q.prev(k), scratch(), scratch()).incoming_left();
    }
  }
  if (apart) lane.level(q.n).reduce(out(), std::vector{sum, scratch()}).final();
}

constexpr uint32_t unbounded = UINT32_MAX, most_peers = 65536;

// Peers that a rank sends to at a time, as the parameters say; 0: they say nothing sensible.
uint32_t peers_of(const Query& q) { return number_behind_name(q, unbounded, 1, most_peers); }

void all_to_all(const Query& q, Schedule& s) {
  // In place block r-k leaves in round n-k: until then what came for it in round k <= n/2 waits in scratch k-1.
  if (q.in_place) s.declare_scratch(q.n / 2);
  Lane lane = s.lane();
  const uint32_t peers = peers_of(q);
  std::vector<StepId> sent(q.n), received(q.n);  // after the steps of round k, where round k + peers waits for them
  for (uint32_t k = 1; k < q.n; ++k) {
    const StepId no_step, send_after = k > peers ? sent[k - peers] : no_step,
                          receive_after = k > peers ? received[k - peers] : no_step;
    const bool waits = q.in_place && k <= q.n - k;
    const bool releases = q.in_place && k >= q.n - k;
    const StepId send = lane.level(2 * k).send(q.next(k), in(q.next(k))).after(send_after);
    const StepId receive = lane.recv(q.prev(k), waits ? scratch(k - 1) : out(q.prev(k))).after(receive_after);
    if (peers < q.n - k) {  // a dependency names a step of another lane
      Lane relay = s.lane(1).level(2 * k + 1);
      sent[k] = relay.nop().after(send);
      received[k] = relay.nop().after(receive);
    }
    if (releases) lane.level(2 * k + 1).copy(out(q.next(k)), scratch(q.n - k - 1));
  }
  if (!q.in_place) lane.copy(out(q.rank), in(q.rank));
}

void barrier(const Query& q, Schedule& s) {
  // A lane may put its signals in order; over many lanes they need not wait for each other.
  for (uint32_t k = 1; k < q.n; ++k) {
    Lane lane = s.lane(k % q.lanes).level(1);
    lane.signal(q.next(k));
    lane.wait(q.prev(k));
  }
}

struct Direct {
  static constexpr const char* name = "direct";
  static constexpr const char* summary = "straight from owner to user: one delay, n-1 messages at the busiest rank";
  static constexpr uint64_t collectives =
      mask({TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_GATHER, TUTTI_ALL_GATHER, TUTTI_SCATTER,
            TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL, TUTTI_BARRIER, TUTTI_GATHER_V, TUTTI_ALL_GATHER_V, TUTTI_SCATTER_V,
            TUTTI_REDUCE_SCATTER_V, TUTTI_ALL_TO_ALL_V});
  static constexpr bool takes_parameters = true;
  static std::string supports(const Query& q) {
    if (q.parameters.empty()) return "";
    if (!peers_of(q))
      return "expected how many peers at a time, 1 to 65536, behind the colon, got \"" + std::string(q.parameters) +
             "\"";
    if (q.form() != TUTTI_ALL_TO_ALL) return "a number of peers is for all_to_all only; name direct alone";
    return q.lanes < 2 ? "needs 2 lanes to count its peers, there is 1" : "";
  }
  static void schedule(const Query& q, Schedule& s) {
    s.sliced(1);  // one message from each rank to each other
    if (alone(q, s)) return;
    switch (q.form()) {
      case TUTTI_BROADCAST:
        return broadcast(q, s);
      case TUTTI_REDUCE:
        return reduce(q, s);
      case TUTTI_ALL_REDUCE:
        return all_reduce(q, s);
      case TUTTI_GATHER:
        return gather(q, s);
      case TUTTI_ALL_GATHER:
        return all_gather(q, s);
      case TUTTI_SCATTER:
        return scatter(q, s);
      case TUTTI_REDUCE_SCATTER:
        return reduce_scatter(q, s);
      case TUTTI_ALL_TO_ALL:
        return all_to_all(q, s);
      case TUTTI_BARRIER:
        return barrier(q, s);
    }
  }
};
}  // namespace

const tutti_algorithm direct = make_algorithm<Direct>();

}  // namespace tutti::algorithms
