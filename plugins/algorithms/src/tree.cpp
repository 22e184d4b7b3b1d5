// SPDX-License-Identifier: Apache-2.0
//
// tree: a binomial tree.
//
// Ranks are numbered from the root: v = rank - root mod n. The parent of v > 0 is v without its lowest set bit; its
// children are v + m for the powers of two m below that bit (below n at the root). The subtree of v is the run of ranks
// v, v+1, ... as long as that bit, cut off at n. The tree is ceil(log2 n) deep.
//
// broadcast, reduce   ceil(log2 n)(a + N/B). The child with the largest subtree is served first, and heard last.
// Partial results cover
//                     runs of ranks, so that with root 0 operands are in rank order.
// all_reduce          reduce to rank 0 on lane 0 and broadcast from it on lane 1, so that slices pass each other on the
//                     way up and down: all ranks get the root's bits.
// gather, scatter     ceil(log2 n) a + (n-1) N/B for blocks of N bytes: a node handles its subtree's run of blocks as
//                     one message. At the root the run may pass block n-1: then it is two messages.
// barrier             signals up, then down. Signals touch no chunk, so nothing but dependencies orders them.
//
// `tree:K` takes a k-nomial tree instead (knomial.hpp), for broadcast, reduce and all_reduce.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "knomial.hpp"
#include "parameters.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

// One rank's place in the tree.
struct Node {
  explicit Node(const Query& query) : q(query), v(query.relative()), limit(v ? v & -v : std::bit_ceil(query.n)) {}
  bool is_root() const { return v == 0; }
  uint32_t parent() const { return q.absolute(v & (v - 1)); }
  bool under_root() const { return v == limit; }
  bool is_leaf() const { return subtree() == 1; }
  // Ranks in this subtree, and in that of the child at distance m.
  uint32_t subtree() const { return std::min(limit, q.n - v); }
  uint32_t subtree(uint32_t m) const { return std::min(m, q.n - v - m); }
  uint32_t child(uint32_t m) const { return q.absolute(v + m); }
  // How far below the root; the round in which a subtree that begins at distance m of its parent hands its part up.
  uint32_t depth() const { return static_cast<uint32_t>(std::popcount(v)); }
  static uint32_t round(uint32_t m) { return static_cast<uint32_t>(std::countr_zero(m)) + 1; }
  // The distance of the farthest child; 0 without one.
  uint32_t farthest() const { return std::bit_floor(subtree() - 1); }

  const Query& q;
  uint32_t v;
  uint32_t limit;  // children are nearer than this
};

// Steps are of the levels above `below`.
void broadcast(const Query& q, Lane lane, const Node& node, uint32_t below = 0, StepId ready = {}) {
  if (!node.is_root()) lane.level(below + node.depth()).recv(node.parent(), out()).after(ready);
  const bool from_in = q.collective == TUTTI_BROADCAST && node.is_root();
  lane.level(below + node.depth() + 1);
  for (uint32_t m = node.farthest(); m > 0; m /= 2)
    lane.send(node.child(m), from_in ? in() : out()).after(node.is_root() ? ready : StepId());
  if (from_in && !q.in_place) lane.copy(out(), in());
}

// Leaves the subtree's partial result in `sum`, or the whole result, and sends it up. The step after which `sum` may be
// used otherwise.
StepId reduce(Lane lane, const Node& node, tutti_span sum) {
  StepId last;
  for (uint32_t m = 1; m <= node.farthest(); m *= 2) {
    auto step = lane.level(node.round(m)).recv_reduce(node.child(m), sum, m == 1 ? in() : sum);
    if (node.is_root() && m == node.farthest()) step.final();
    last = step;
  }
  if (!node.is_root()) last = lane.level(node.round(node.limit)).send(node.parent(), node.is_leaf() ? in() : sum);
  return last;
}

void gather(const Query& q, Schedule& s, const Node& node) {
  if (!node.is_root() && !node.is_leaf()) s.declare_scratch(node.subtree());
  Lane lane = s.lane();
  if (node.is_leaf()) return void(lane.level(node.round(node.limit)).send(node.parent(), in()));
  if (!node.is_root()) lane.level(1).copy(scratch(0), in());
  for (uint32_t m = 1; m <= node.farthest(); m *= 2) {
    lane.level(node.round(m));
    if (!node.is_root())
      lane.recv(node.child(m), scratch(m, node.subtree(m)));
    else
      for (const Run& run : CyclicRun(node.child(m), node.subtree(m), q.n))
        lane.recv(node.child(m), out(run.first, run.count));
  }
  lane.level(node.round(node.limit));
  if (node.is_root()) {
    if (!q.in_place) lane.copy(out(q.rank), in());
  } else if (node.under_root()) {
    for (const Run& run : CyclicRun(q.rank, node.subtree(), q.n))
      lane.send(node.parent(), scratch(run.offset, run.count));
  } else {
    lane.send(node.parent(), scratch(0, node.subtree()));
  }
}

void scatter(const Query& q, Schedule& s, const Node& node) {
  if (!node.is_root() && !node.is_leaf()) s.declare_scratch(node.subtree());
  Lane lane = s.lane().level(node.depth());
  if (node.is_leaf()) return void(lane.recv(node.parent(), out()));
  if (node.under_root()) {
    for (const Run& run : CyclicRun(q.rank, node.subtree(), q.n))
      lane.recv(node.parent(), scratch(run.offset, run.count));
  } else if (!node.is_root()) {
    lane.recv(node.parent(), scratch(0, node.subtree()));
  }
  lane.level(node.depth() + 1);
  for (uint32_t m = node.farthest(); m > 0; m /= 2) {
    if (!node.is_root())
      lane.send(node.child(m), scratch(m, node.subtree(m)));
    else
      for (const Run& run : CyclicRun(node.child(m), node.subtree(m), q.n))
        lane.send(node.child(m), in(run.first, run.count));
  }
  if (!node.is_root())
    lane.copy(out(), scratch(0));
  else if (!q.in_place)
    lane.copy(out(), in(q.rank));
}

void barrier(Schedule& s, const Node& node) {
  Lane lane = s.lane(0), relay = s.lane(1);
  StepId heard;                                 // all that came so far
  const uint32_t up = 2 * ceil_log2(node.q.n);  // levels
  for (uint32_t m = 1; m <= node.farthest(); m *= 2) {
    const StepId came = lane.level(2 * node.round(m) - 1).wait(node.child(m)).after(heard);
    heard = relay.level(2 * node.round(m)).nop().after(came);
  }
  if (!node.is_root()) {
    lane.level(2 * node.round(node.limit) - 1).signal(node.parent()).after(heard);
    const StepId came = lane.level(up + 2 * node.depth() - 1).wait(node.parent());
    heard = relay.level(up + 2 * node.depth()).nop().after(came);
  }
  lane.level(up + 2 * node.depth() + 1);
  for (uint32_t m = node.farthest(); m > 0; m /= 2) lane.signal(node.child(m)).after(heard);
}

// The base that the parameters name, 2 without; 0: they name none.
uint32_t base_of(const Query& q) { return number_behind_name(q, 2, 2, most_tree_base); }

struct Tree {
  static constexpr const char* name = "tree";
  static constexpr const char* summary = "a binomial tree: logarithmic latency, whole messages";
  static constexpr uint64_t collectives =
      mask({TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_GATHER, TUTTI_SCATTER, TUTTI_BARRIER});
  static constexpr bool takes_parameters = true;
  static std::string supports(const Query& q) {
    if (!base_of(q)) return "expected a base from 2 to 64 behind the colon, got \"" + std::string(q.parameters) + "\"";
    const bool takes_base =
        q.collective == TUTTI_BROADCAST || q.collective == TUTTI_REDUCE || q.collective == TUTTI_ALL_REDUCE;
    if (base_of(q) != 2 && !takes_base) return "a base is for broadcast, reduce and all_reduce only; name tree alone";
    const bool two = q.collective == TUTTI_ALL_REDUCE || q.collective == TUTTI_BARRIER;
    return two && q.lanes < 2 ? "needs 2 lanes, there is 1" : "";
  }
  static void schedule(const Query& q, Schedule& s) {
    // All messages of one rank to another on a lane have one level. A gather waits for the root's processor: slices
    // cost more messages there and gain nothing.
    if (q.collective != TUTTI_GATHER) s.sliced(1);
    if (alone(q, s)) return;
    if (base_of(q) != 2) return knomial_tree(q, s, base_of(q));
    const Node node(q);
    switch (q.collective) {
      case TUTTI_BROADCAST:
        return broadcast(q, s.lane(), node);
      case TUTTI_REDUCE:
        if (!node.is_root() && !node.is_leaf()) s.declare_scratch(1);
        return void(reduce(s.lane(), node, node.is_root() ? out() : scratch()));
      case TUTTI_ALL_REDUCE:
        return broadcast(q, s.lane(1), node, ceil_log2(q.n), reduce(s.lane(0), node, out()));
      case TUTTI_GATHER:
        return gather(q, s, node);
      case TUTTI_SCATTER:
        return scatter(q, s, node);
      case TUTTI_BARRIER:
        return barrier(s, node);
    }
  }
};
}  // namespace

const tutti_algorithm tree = make_algorithm<Tree>();

}  // namespace tutti::algorithms
