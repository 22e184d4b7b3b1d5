// SPDX-License-Identifier: Apache-2.0
//
// leaders: one rank of each host, its first or the root, speaks for the host: the fewest messages between hosts.
//
// H hosts of s ranks; a, B: latency and bytes per second between hosts, b, C: inside one; N: bytes of a block. The idea
// is that of MagPIe (Kielmann et al., "MPI's reduction operations in clustered wide area systems", 1999): a message
// crosses the slow network as rarely as possible.
//
// broadcast, reduce   A binomial tree over the leaders, and one inside each host:
//                     ceil(log2 H)(a + N/B) + ceil(log2 s)(b + N/C).
// all_reduce          Trees inside hosts reduce to the leaders, which double recursively among themselves (doubling.cpp
//                     has the idea), and trees hand the result out: log2 H (a + N/B) + 2 ceil(log2 s)(b + N/C), two
//                     rounds more between hosts unless H is a power of two. Operands are in rank order where hosts
//                     have consecutive ranks.
// gather, scatter     A leader handles its host's blocks as one message for each run of consecutive ranks:
//                     (H-1) a + (n-s) N/B + (s-1)(b + N/C) at the root.
// barrier             Trees up, dissemination over the leaders, trees down: ceil(log2 H) a + 2 ceil(log2 s) b.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "hosts.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

// Place v of a binomial tree over `n` places, of which 0 is the root. tree.cpp explains the numbers.
struct Place {
  uint32_t n, v;
  uint32_t limit() const { return v ? v & -v : std::bit_ceil(n); }
  uint32_t parent() const { return v & (v - 1); }
  uint32_t depth() const { return static_cast<uint32_t>(std::popcount(v)); }
  // The distance of the farthest child; 0 without one.
  uint32_t farthest() const { return std::bit_floor(std::min(limit(), n - v) - 1); }
  static uint32_t round(uint32_t distance) { return static_cast<uint32_t>(std::countr_zero(distance)) + 1; }
};

// One rank's place among the leaders, counted from the root's host, and inside its host, counted from its leader.
struct Node {
  explicit Node(const Query& query)
      : q(query),
        hosts(query),
        root_host(query.host_of_rank.empty() ? 0 : query.host_of_rank[query.root]),
        inside{hosts.size(hosts.own),
               (hosts.index[q.rank] + hosts.size(hosts.own) - lead(hosts.own)) % hosts.size(hosts.own)},
        between{hosts.count(), (hosts.own + hosts.count() - root_host) % hosts.count()} {}
  bool is_leader() const { return inside.v == 0; }
  // The index of a host's leader among its ranks.
  uint32_t lead(uint32_t host) const { return host == root_host ? hosts.index[q.root] : 0; }
  // The rank at a place.
  uint32_t mate(uint32_t v) const { return hosts.members[hosts.own][(v + lead(hosts.own)) % hosts.size(hosts.own)]; }
  uint32_t leader(uint32_t v) const {
    const uint32_t host = (v + root_host) % hosts.count();
    return hosts.members[host][lead(host)];
  }
  // Rounds of the highest tree inside a host, and over the leaders.
  uint32_t rounds_inside() const { return ceil_log2(hosts.largest); }
  uint32_t rounds_between() const { return ceil_log2(hosts.count()); }

  const Query& q;
  Hosts hosts;
  uint32_t root_host;
  Place inside, between;
};

// Sends `block` down the tree inside this host; steps are of the levels above `below`.
void hand_out(const Node& node, Lane lane, uint32_t below, tutti_span block, StepId ready) {
  if (!node.is_leader()) lane.level(below + node.inside.depth()).recv(node.mate(node.inside.parent()), block);
  lane.level(below + node.inside.depth() + 1);
  for (uint32_t m = node.inside.farthest(); m > 0; m /= 2)
    lane.send(node.mate(node.inside.v + m), block).after(node.is_leader() ? ready : StepId());
}

void broadcast(const Query& q, Lane lane, const Node& node) {
  const tutti_span block = q.is_root() ? in() : out();
  if (node.is_leader()) {
    if (!q.is_root()) lane.level(node.between.depth()).recv(node.leader(node.between.parent()), block);
    lane.level(node.between.depth() + 1);
    for (uint32_t m = node.between.farthest(); m > 0; m /= 2) lane.send(node.leader(node.between.v + m), block);
  }
  hand_out(node, lane, node.rounds_between(), block, {});
  if (q.is_root() && !q.in_place) lane.copy(out(), in());
}

// The partial result of a rank: where it is, and whether there is a further operand to come.
struct Sum {
  tutti_span at = in();
  StepId last = {};
};
// Reduces this rank's subtree of a tree into `place`. `rank_of` says which rank is at a place.
template <typename RankOf>
void collect(Lane lane, const Place& tree, uint32_t below, tutti_span place, bool ends, Sum& sum, RankOf&& rank_of) {
  for (uint32_t m = 1; m <= tree.farthest(); m *= 2) {
    auto step = lane.level(below + Place::round(m)).recv_reduce(rank_of(tree.v + m), place, sum.at);
    if (ends && m == tree.farthest()) step.final();
    sum = {place, step};
  }
}
// ... and hands it up inside the host, unless this is the leader.
void collect_inside(const Node& node, Lane lane, tutti_span place, bool ends, Sum& sum) {
  collect(lane, node.inside, 0, place, ends, sum, [&](uint32_t v) { return node.mate(v); });
  if (node.is_leader()) return;
  sum.last = lane.level(Place::round(node.inside.limit())).send(node.mate(node.inside.parent()), sum.at);
}

void reduce(const Query& q, Schedule& s, const Node& node) {
  const bool keeps = node.inside.farthest() || (node.is_leader() && node.between.farthest());
  if (keeps && !q.is_root()) s.declare_scratch(1);
  Lane lane = s.lane();
  Sum sum;
  const tutti_span place = q.is_root() ? out() : scratch();
  collect_inside(node, lane, place, q.is_root() && node.hosts.count() == 1, sum);
  if (!node.is_leader()) return;
  collect(lane, node.between, node.rounds_inside(), place, q.is_root(), sum,
          [&](uint32_t v) { return node.leader(v); });
  if (!q.is_root())
    lane.level(node.rounds_inside() + Place::round(node.between.limit()))
        .send(node.leader(node.between.parent()), sum.at);
}

// The leaders' recursive doubling, above level `below`. The result ends in OUT. The sum moves between OUT and scratch,
// since it may not change while it is being sent.
void double_between(const Query& q, const Node& node, Lane lane, uint32_t below, Sum& sum) {
  const uint32_t hosts = node.hosts.count(), power = std::bit_floor(hosts), extra = hosts - power, v = node.between.v;
  const auto rounds = static_cast<uint32_t>(std::countr_zero(power));
  const bool paired = v < 2 * extra;
  if (paired && v % 2 == 0) {
    lane.level(below + 1).send(node.leader(v + 1), sum.at);
    sum.last = lane.level(below + rounds + 3).recv(node.leader(v + 1), out());
    return;
  }
  if (paired) {
    const tutti_span place = rounds % 2 == 1 ? scratch() : out();
    sum.last = lane.level(below + 1).recv_reduce(node.leader(v - 1), place, sum.at).incoming_left();
    sum.at = place;
  }
  bool to_out =
      sum.at.buffer == TUTTI_BUFFER_SCRATCH || (sum.at.buffer == TUTTI_BUFFER_IN && !q.in_place && rounds % 2 == 1);
  const uint32_t place = paired ? v / 2 : v - extra;
  uint32_t level = below + 1;
  for (uint32_t bit = 1; bit < power; bit *= 2, to_out = !to_out) {
    const uint32_t peer = place ^ bit;
    const uint32_t rank = node.leader(peer < extra ? 2 * peer + 1 : peer + extra);
    const tutti_span next = to_out ? out() : scratch();
    lane.level(++level).send(rank, sum.at);
    auto step = lane.recv_reduce(rank, next, sum.at).incoming_left(peer < place);
    if (bit == power / 2 && to_out) step.final();
    sum = {next, step};
  }
  if (sum.at.buffer != TUTTI_BUFFER_OUT) sum.last = lane.level(below + rounds + 2).copy(out(), sum.at).final();
  if (paired) sum.last = lane.level(below + rounds + 3).send(node.leader(v - 1), out());
}

void all_reduce(const Query& q, Schedule& s, const Node& node) {
  // The result goes down in a lane of its own, so that slices pass each other on the way up and down.
  const bool two_lanes = q.lanes > 1, alone_here = node.hosts.count() == 1;
  const bool odd = node.rounds_between() > 0 && std::countr_zero(std::bit_floor(node.hosts.count())) % 2 == 1;
  if (node.is_leader() && !alone_here) s.declare_scratch(1);
  Lane up = s.lane(0), down = s.lane(two_lanes ? 1 : 0);
  Sum sum;
  collect_inside(node, up, node.is_leader() && odd ? scratch() : out(), node.is_leader() && alone_here, sum);
  uint32_t level = node.rounds_inside();
  if (node.is_leader() && !alone_here) double_between(q, node, up, level, sum);
  level += node.rounds_between() + 3;
  const StepId last = two_lanes ? sum.last : StepId();
  hand_out(node, down, level, out(), last);
}

void gather(const Query& q, Schedule& s, const Node& node) {
  const auto& mine = node.hosts.members[node.hosts.own];
  Lane lane = s.lane().level(1);
  if (!node.is_leader()) return void(lane.send(node.mate(0), in()));
  const bool forwards = !q.is_root() && mine.size() > 1;
  if (forwards) s.declare_scratch(static_cast<uint32_t>(mine.size()));
  for (uint32_t i = 0; i < mine.size(); ++i) {
    const tutti_span place = q.is_root() ? out(mine[i]) : scratch(i);
    if (mine[i] != q.rank)
      lane.recv(mine[i], place);
    else if (q.is_root() ? !q.in_place : forwards)
      lane.copy(place, in());
  }
  lane.level(2);
  uint32_t sent = 0;
  for (const RankRun& run : q.is_root() ? std::vector<RankRun>() : runs_of(mine)) {
    lane.send(q.root, forwards ? scratch(sent, run.count) : in());
    sent += run.count;
  }
  for (uint32_t v = 1; q.is_root() && v < node.hosts.count(); ++v)
    for (const RankRun& run : runs_of(node.hosts.members[(v + node.root_host) % node.hosts.count()]))
      lane.recv(node.leader(v), out(run.first, run.count));
}

void scatter(const Query& q, Schedule& s, const Node& node) {
  const auto& mine = node.hosts.members[node.hosts.own];
  Lane lane = s.lane().level(2);
  if (!node.is_leader()) return void(lane.recv(node.mate(0), out()));
  const bool forwards = !q.is_root() && mine.size() > 1;
  if (forwards) s.declare_scratch(static_cast<uint32_t>(mine.size()));
  lane.level(1);
  for (uint32_t v = 1; q.is_root() && v < node.hosts.count(); ++v)
    for (const RankRun& run : runs_of(node.hosts.members[(v + node.root_host) % node.hosts.count()]))
      lane.send(node.leader(v), in(run.first, run.count));
  uint32_t received = 0;
  for (const RankRun& run : q.is_root() ? std::vector<RankRun>() : runs_of(mine)) {
    lane.recv(q.root, forwards ? scratch(received, run.count) : out());
    received += run.count;
  }
  lane.level(2);
  for (uint32_t i = 0; i < mine.size(); ++i) {
    const tutti_span place = q.is_root() ? in(mine[i]) : scratch(i);
    if (mine[i] != q.rank)
      lane.send(mine[i], place);
    else if (q.is_root() ? !q.in_place : forwards)
      lane.copy(out(), place);
  }
}

void barrier(Schedule& s, const Node& node) {
  Lane lane = s.lane(0), relay = s.lane(1);
  StepId heard;  // all that came so far: signals touch no chunk, only the way over the second lane puts them in order
  uint32_t level = 0;
  const auto hear = [&](uint32_t rank, uint32_t at) {
    const StepId came = lane.level(2 * at - 1).wait(rank).after(heard);
    heard = relay.level(2 * at).nop().after(came);
  };
  for (uint32_t m = 1; m <= node.inside.farthest(); m *= 2) hear(node.mate(node.inside.v + m), Place::round(m));
  if (!node.is_leader())
    lane.level(2 * Place::round(node.inside.limit()) - 1).signal(node.mate(node.inside.parent())).after(heard);
  level = node.rounds_inside();
  const uint32_t hosts = node.hosts.count(), v = node.between.v;
  for (uint32_t distance = 1; distance < hosts; distance *= 2) {
    ++level;
    if (!node.is_leader()) continue;
    lane.level(2 * level - 1).signal(node.leader((v + distance) % hosts)).after(heard);
    hear(node.leader((v + hosts - distance) % hosts), level);
  }
  if (!node.is_leader()) hear(node.mate(node.inside.parent()), level + node.inside.depth());
  lane.level(2 * (level + node.inside.depth() + 1) - 1);
  for (uint32_t m = node.inside.farthest(); m > 0; m /= 2) lane.signal(node.mate(node.inside.v + m)).after(heard);
}

struct Leaders {
  static constexpr const char* name = "leaders";
  static constexpr const char* summary = "one rank speaks for its host: the fewest messages between hosts";
  static constexpr uint64_t collectives =
      mask({TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_ALL_REDUCE, TUTTI_GATHER, TUTTI_SCATTER, TUTTI_BARRIER});
  static std::string supports(const Query& q) {
    return q.collective == TUTTI_BARRIER && q.lanes < 2 ? "needs 2 lanes, there is 1" : "";
  }
  static void schedule(const Query& q, Schedule& s) {
    // One level for all messages of one rank to another on a lane. A gather waits for the root's processor.
    if (q.collective != TUTTI_GATHER) s.sliced(1);
    if (alone(q, s)) return;
    const Node node(q);
    switch (q.collective) {
      case TUTTI_BROADCAST:
        return broadcast(q, s.lane(), node);
      case TUTTI_REDUCE:
        return reduce(q, s, node);
      case TUTTI_ALL_REDUCE:
        return all_reduce(q, s, node);
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

const tutti_algorithm leaders = make_algorithm<Leaders>();

}  // namespace tutti::algorithms
