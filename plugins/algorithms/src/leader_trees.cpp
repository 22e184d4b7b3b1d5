// SPDX-License-Identifier: Apache-2.0
#include "leader_trees.hpp"

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

// A group in which this rank is, or its leader: places are counted from the group's leader.
struct Group {
  Group(std::vector<uint32_t> members, uint32_t leader, uint32_t own, uint32_t most) : ranks(std::move(members)) {
    std::rotate(ranks.begin(), std::find(ranks.begin(), ranks.end(), leader), ranks.end());
    const auto at = std::find(ranks.begin(), ranks.end(), own);
    places = {static_cast<uint32_t>(ranks.size()), static_cast<uint32_t>(at - ranks.begin())};
    rounds = ceil_log2(most);
  }
  uint32_t rank(uint32_t v) const { return ranks[v % places.n]; }
  uint32_t parent() const { return rank(places.parent()); }
  // Runs f(rank, distance) for the children in the tree, the nearest or the farthest first.
  template <typename F>
  void rising(F f) const {
    for (uint32_t m = 1; m <= places.farthest(); m *= 2) f(rank(places.v + m), m);
  }
  template <typename F>
  void falling(F f) const {
    for (uint32_t m = places.farthest(); m > 0; m /= 2) f(rank(places.v + m), m);
  }

  std::vector<uint32_t> ranks;  // by place
  Place places{};
  uint32_t rounds = 0;  // of the highest tree of a group of this level, on any host
};

// The groups above a rank, from its node's or host's to that of the hosts' leaders. A rank takes part in a group where
// it leads all those before.
class Groups {
 public:
  Groups(const Query& query, Nodes::By by) : q_(query), hosts_(query), nodes_(query, hosts_, by) {
    const std::vector<uint32_t>& mine = hosts_.members[hosts_.own];
    std::vector<uint32_t> leaders;
    for (uint32_t node = 0; node < nodes_.count(); ++node) leaders.push_back(leader_of(ranks_of_node(node)));
    add(ranks_of_node(nodes_.own), q_.rank, nodes_.most_members);
    if (by == Nodes::By::numa) add(leaders, leaders[nodes_.own], nodes_.most_nodes);
    leaders.clear();
    for (const auto& members : hosts_.members) leaders.push_back(leader_of(members));
    list_.emplace_back(leaders, leader_of(hosts_.members[root_host()]), leader_of(mine), hosts_.count());
    while (takes_part_ < list_.size() && list_[takes_part_].places.v == 0) ++takes_part_;
  }

  size_t count() const { return list_.size(); }
  const Group& operator[](size_t i) const { return list_[i]; }
  const Group& hosts() const { return list_.back(); }
  // Does this rank take part in a group; does it lead it?
  bool takes_part(size_t i) const { return i <= takes_part_; }
  bool leads(size_t i) const { return i < takes_part_; }
  bool leads_host() const { return takes_part_ >= list_.size() - 1; }
  bool has_children() const {
    for (size_t i = 0; i < list_.size(); ++i)
      if (takes_part(i) && list_[i].places.farthest() > 0) return true;
    return false;
  }
  // The rounds of the groups below `end`.
  uint32_t rounds(size_t end) const {
    uint32_t sum = 0;
    for (size_t i = 0; i < end; ++i) sum += list_[i].rounds;
    return sum;
  }
  // The ranks for which a member of group i speaks in it, ascending.
  std::vector<uint32_t> behind(size_t i, uint32_t member) const {
    if (i == 0) return {member};
    if (i + 1 == list_.size()) return hosts_.members[q_.host_of_rank.empty() ? 0 : q_.host_of_rank[member]];
    for (uint32_t node = 0; node < nodes_.count(); ++node)
      if (const auto ranks = ranks_of_node(node); std::binary_search(ranks.begin(), ranks.end(), member)) return ranks;
    return {};
  }
  // The ranks for which this rank speaks.
  std::vector<uint32_t> own() const { return behind(std::min(takes_part_, list_.size() - 1), q_.rank); }

 private:
  void add(std::vector<uint32_t> ranks, uint32_t own, uint32_t most) {
    const uint32_t leader = leader_of(ranks);
    list_.emplace_back(std::move(ranks), leader, own, most);
  }
  uint32_t root_host() const { return q_.host_of_rank.empty() ? 0 : q_.host_of_rank[q_.root]; }
  uint32_t leader_of(const std::vector<uint32_t>& ranks) const {
    return std::find(ranks.begin(), ranks.end(), q_.root) != ranks.end() ? q_.root : ranks.front();
  }
  std::vector<uint32_t> ranks_of_node(uint32_t node) const {
    std::vector<uint32_t> ranks;
    for (const uint32_t i : nodes_.members[node]) ranks.push_back(hosts_.members[hosts_.own][i]);
    return ranks;
  }

  const Query& q_;
  Hosts hosts_;
  Nodes nodes_;
  std::vector<Group> list_;
  size_t takes_part_ = 0;  // the last group in which this rank takes part
};

// Hands `block` down the trees of the groups below `end`, the widest first; steps are of the levels above `below`.
void hand_out(const Groups& groups, size_t end, Lane lane, uint32_t below, tutti_span block, StepId ready) {
  for (size_t i = end; i-- > 0; below += groups[i].rounds) {
    if (!groups.takes_part(i)) continue;
    const Place& places = groups[i].places;
    if (places.v != 0) lane.level(below + places.depth()).recv(groups[i].parent(), block);
    lane.level(below + places.depth() + 1);
    groups[i].falling(
        [&](uint32_t child, uint32_t) { lane.send(child, block).after(groups.leads_host() ? ready : StepId()); });
  }
}

void broadcast(const Query& q, Lane lane, const Groups& groups) {
  hand_out(groups, groups.count(), lane, 0, q.is_root() ? in() : out(), {});
  if (q.is_root() && !q.in_place) lane.copy(out(), in());
}

// The partial result of a rank: where it is, and the step that put it there.
struct Sum {
  tutti_span at = in();
  StepId last = {};
};
// Reduces up the trees of the groups below `end` into `place`, the narrowest first. `ends`: there the result is whole.
void collect(const Groups& groups, size_t end, Lane lane, tutti_span place, bool ends, Sum& sum) {
  uint32_t below = 0, operands = 0, taken = 0;
  for (size_t i = 0; i < end && groups.takes_part(i); ++i) groups[i].rising([&](uint32_t, uint32_t) { ++operands; });
  for (size_t i = 0; i < end && groups.takes_part(i); below += groups[i++].rounds) {
    groups[i].rising([&](uint32_t child, uint32_t m) {
      auto step = lane.level(below + Place::round(m)).recv_reduce(child, place, sum.at);
      if (ends && ++taken == operands) step.final();
      sum = {place, step};
    });
    if (groups.leads(i)) continue;
    const uint32_t distance = groups[i].places.limit();
    sum.last = lane.level(below + Place::round(distance)).send(groups[i].parent(), sum.at);
  }
}

void reduce(const Query& q, Schedule& s, const Groups& groups) {
  if (!q.is_root() && groups.has_children()) s.declare_scratch(1);
  Sum sum;
  collect(groups, groups.count(), s.lane(), q.is_root() ? out() : scratch(), q.is_root(), sum);
}

// The leaders' recursive doubling, above level `below`. The result ends in OUT. The sum moves between OUT and scratch,
// since it may not change while it is being sent.
void double_between(const Query& q, const Groups& groups, Lane lane, uint32_t below, Sum& sum) {
  const auto [hosts, v] = groups.hosts().places;
  const uint32_t power = std::bit_floor(hosts), extra = hosts - power;
  const auto rounds = static_cast<uint32_t>(std::countr_zero(power));
  const bool paired = v < 2 * extra;
  if (paired && v % 2 == 0) {
    lane.level(below + 1).send(groups.hosts().rank(v + 1), sum.at);
    sum.last = lane.level(below + rounds + 3).recv(groups.hosts().rank(v + 1), out());
    return;
  }
  if (paired) {
    const tutti_span place = rounds % 2 == 1 ? scratch() : out();
    sum.last = lane.level(below + 1).recv_reduce(groups.hosts().rank(v - 1), place, sum.at).incoming_left();
    sum.at = place;
  }
  bool to_out =
      sum.at.buffer == TUTTI_BUFFER_SCRATCH || (sum.at.buffer == TUTTI_BUFFER_IN && !q.in_place && rounds % 2 == 1);
  const uint32_t place = paired ? v / 2 : v - extra;
  uint32_t level = below + 1;
  for (uint32_t bit = 1; bit < power; bit *= 2, to_out = !to_out) {
    const uint32_t peer = place ^ bit;
    const uint32_t rank = groups.hosts().rank(peer < extra ? 2 * peer + 1 : peer + extra);
    const tutti_span next = to_out ? out() : scratch();
    lane.level(++level).send(rank, sum.at);
    auto step = lane.recv_reduce(rank, next, sum.at).incoming_left(peer < place);
    if (bit == power / 2 && to_out) step.final();
    sum = {next, step};
  }
  if (sum.at.buffer != TUTTI_BUFFER_OUT) sum.last = lane.level(below + rounds + 2).copy(out(), sum.at).final();
  if (paired) sum.last = lane.level(below + rounds + 3).send(groups.hosts().rank(v - 1), out());
}

void all_reduce(const Query& q, Schedule& s, const Groups& groups) {
  const size_t inside = groups.count() - 1;
  const uint32_t hosts = groups.hosts().places.n;
  // The result goes down in a lane of its own, so that slices pass each other on the way up and down.
  const bool two_lanes = q.lanes > 1, alone_here = hosts == 1;
  const bool odd = !alone_here && std::countr_zero(std::bit_floor(hosts)) % 2 == 1;
  if (groups.leads_host() && !alone_here) s.declare_scratch(1);
  Lane up = s.lane(0), down = s.lane(two_lanes ? 1 : 0);
  Sum sum;
  const bool ends = groups.leads_host() && alone_here;
  collect(groups, inside, up, groups.leads_host() && odd ? scratch() : out(), ends, sum);
  uint32_t level = groups.rounds(inside);
  if (groups.leads_host() && !alone_here) double_between(q, groups, up, level, sum);
  level += groups.hosts().rounds + 3;
  hand_out(groups, inside, down, level, out(), two_lanes ? sum.last : StepId());
}

// Moves the blocks of a gather up, or those of a scatter down: between a leader and each other member of a group, in a
// message for each run of consecutive ranks for whom the member speaks.
class Blocks {
 public:
  Blocks(const Query& q, Schedule& s, const Groups& groups) : q_(q), groups_(groups), own_(groups.own()) {
    if (!q.is_root() && own_.size() > 1) s.declare_scratch(static_cast<uint32_t>(own_.size()));
  }
  void gather(Lane lane) const {
    lane.level(1);
    copy(lane);
    for (size_t i = 0; i < groups_.count() && groups_.takes_part(i); ++i) {
      lane.level(static_cast<uint32_t>(i + 1));
      if (groups_.leads(i))
        for_members(i, [&](uint32_t member, RankRun run) { lane.recv(member, place(run)); });
      else
        for (const RankRun& run : runs_of(own_)) lane.send(groups_[i].rank(0), place(run));
    }
  }
  void scatter(Lane lane) const {
    for (size_t i = groups_.count(); i-- > 0;) {
      if (!groups_.takes_part(i)) continue;
      lane.level(static_cast<uint32_t>(groups_.count() - i));
      if (groups_.leads(i))
        for_members(i, [&](uint32_t member, RankRun run) { lane.send(member, place(run)); });
      else
        for (const RankRun& run : runs_of(own_)) lane.recv(groups_[i].rank(0), place(run));
    }
    copy(lane);
  }

 private:
  template <typename F>
  void for_members(size_t i, F f) const {
    for (uint32_t v = 1; v < groups_[i].places.n; ++v)
      for (const RankRun& run : runs_of(groups_.behind(i, groups_[i].rank(v)))) f(groups_[i].rank(v), run);
  }
  bool gathers() const { return q_.form() == TUTTI_GATHER; }
  // Where this rank has the blocks of others for whom it speaks, and its own.
  tutti_span place(RankRun run) const {
    if (q_.is_root()) return gathers() ? out(run.first, run.count) : in(run.first, run.count);
    if (own_.size() == 1) return gathers() ? in() : out();
    const auto at = std::lower_bound(own_.begin(), own_.end(), run.first) - own_.begin();
    return scratch(static_cast<uint32_t>(at), run.count);
  }
  // The own block, between the caller's memory and the others'.
  void copy(Lane lane) const {
    if (q_.is_root() ? q_.in_place : own_.size() == 1) return;
    const tutti_span there = place({q_.rank, 1});
    lane.copy(gathers() ? there : out(), gathers() ? in() : there);
  }

  const Query& q_;
  const Groups& groups_;
  std::vector<uint32_t> own_;  // for whom this rank speaks
};

void barrier(Schedule& s, const Groups& groups) {
  Lane lane = s.lane(0), relay = s.lane(1);
  StepId heard;  // all that came so far: signals touch no chunk, only the way over the second lane puts them in order
  const auto hear = [&](uint32_t rank, uint32_t at) {
    const StepId came = lane.level(2 * at - 1).wait(rank).after(heard);
    heard = relay.level(2 * at).nop().after(came);
  };
  const size_t inside = groups.count() - 1;
  uint32_t below = 0;
  for (size_t i = 0; i < inside && groups.takes_part(i); below += groups[i++].rounds) {
    groups[i].rising([&](uint32_t child, uint32_t m) { hear(child, below + Place::round(m)); });
    if (groups.leads(i)) continue;
    const uint32_t round = Place::round(groups[i].places.limit());
    lane.level(2 * (below + round) - 1).signal(groups[i].parent()).after(heard);
  }
  uint32_t level = groups.rounds(inside);
  const auto [hosts, v] = groups.hosts().places;
  for (uint32_t distance = 1; distance < hosts; distance *= 2) {
    ++level;
    if (!groups.leads_host()) continue;
    lane.level(2 * level - 1).signal(groups.hosts().rank(v + distance)).after(heard);
    hear(groups.hosts().rank(v + hosts - distance), level);
  }
  for (size_t i = inside; i-- > 0; level += groups[i].rounds) {
    if (!groups.takes_part(i)) continue;
    const Place& places = groups[i].places;
    if (places.v != 0) hear(groups[i].parent(), level + places.depth());
    lane.level(2 * (level + places.depth() + 1) - 1);
    groups[i].falling([&](uint32_t child, uint32_t) { lane.signal(child).after(heard); });
  }
}

}  // namespace

void over_leaders(const Query& q, Schedule& s, Nodes::By by) {
  const Groups groups(q, by);
  switch (q.form()) {
    case TUTTI_BROADCAST:
      return broadcast(q, s.lane(), groups);
    case TUTTI_REDUCE:
      return reduce(q, s, groups);
    case TUTTI_ALL_REDUCE:
      return all_reduce(q, s, groups);
    case TUTTI_GATHER:
      return Blocks(q, s, groups).gather(s.lane());
    case TUTTI_SCATTER:
      return Blocks(q, s, groups).scatter(s.lane());
    case TUTTI_BARRIER:
      return barrier(s, groups);
  }
}

}  // namespace tutti::algorithms
