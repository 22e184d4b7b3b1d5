// SPDX-License-Identifier: Apache-2.0
#include "hierarchical_blocks.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

// The ranks of the own host, and whose blocks each of them takes care of.
struct Place {
  Place(const Query& q, Nodes::By by)
      : hosts(q),
        nodes(q, hosts, by),
        mine(hosts.members[hosts.own]),
        me(hosts.index[q.rank]),
        of_rank(mine.size()),
        of_place(nodes.size()) {
    for (const auto& members : hosts.members)
      for (uint32_t i = 0; i < members.size(); ++i) of_rank[i % of_rank.size()].push_back(members[i]);
    for (auto& list : of_rank) std::sort(list.begin(), list.end());
    for (uint32_t place = 0; place < nodes.size(); ++place) {
      for (const uint32_t i : nodes.cares(place))
        of_place[place].insert(of_place[place].end(), of_rank[i].begin(), of_rank[i].end());
      std::sort(of_place[place].begin(), of_place[place].end());
    }
  }
  Place(const Place&) = delete;
  uint32_t size() const { return static_cast<uint32_t>(mine.size()); }
  uint32_t rank_at(uint32_t place) const { return mine[nodes.members[nodes.own][place]]; }

  const Hosts hosts;
  const Nodes nodes;
  const std::vector<uint32_t>& mine;            // the ranks of this host
  const uint32_t me;                            // which of them this is
  std::vector<std::vector<uint32_t>> of_rank;   // for each of them: itself, and ranks of the other hosts
  std::vector<std::vector<uint32_t>> of_place;  // for each of the node: these, and those of ranks of the other nodes
};

// One rank's reduce_scatter.
class ReduceScatter {
 public:
  ReduceScatter(const Query& q, Schedule& s, Nodes::By by)
      : place_(q, by),
        rank_(q.rank),
        adds_left_(place_.nodes.size() + place_.nodes.count() + place_.hosts.count() - 3),
        partials_(others(place_.of_place[place_.nodes.place], q.rank)),
        lane_(start(q, s)) {}

  void emit() {
    const Nodes& nodes = place_.nodes;
    for (uint32_t k = 1; k < nodes.size(); ++k) {
      const uint32_t to = nodes.next(k), from = place_.rank_at(nodes.prev(k));
      lane_.level(k);
      std::vector<RunMessage> leaving, coming;
      lane_.send(place_.rank_at(to), in(place_.rank_at(to)));
      add(from);
      add_messages(leaving, place_.rank_at(to), others(place_.of_place[to], place_.rank_at(to)));
      add_messages(coming, from, partials_);
      trade(leaving, coming, k == 1);
    }
    raw_ = nodes.size() == 1;
    for (uint32_t k = 1; k < nodes.count(); ++k) {
      const uint32_t from = place_.mine[nodes.carer(nodes.prev_node(k), nodes.place)];
      lane_.level(nodes.most_members - 1 + k);
      std::vector<RunMessage> leaving, coming;
      for (const uint32_t i : nodes.cares(nodes.place, nodes.next_node(k))) {
        lane_.send(place_.mine[i], partial({place_.mine[i], 1}));
        add_messages(leaving, place_.mine[i], others(place_.of_rank[i], place_.mine[i]));
      }
      add(from);
      add_messages(coming, from, others(place_.of_rank[place_.me], rank_));
      trade(leaving, coming, raw_ && k == 1);
    }
    raw_ = place_.size() == 1;
    for (uint32_t k = 1; k < place_.hosts.count(); ++k) {
      const uint32_t to = place_.hosts.next(k), from = place_.hosts.prev(k);
      lane_.level(nodes.most_members + nodes.most_nodes - 1 + k);
      for (uint32_t i = place_.me; i < place_.hosts.size(to); i += place_.size()) {
        const uint32_t owner = place_.hosts.members[to][i];
        lane_.send(owner, partial({owner, 1}));
      }
      add(place_.hosts.members[from][place_.me % place_.hosts.size(from)]);
    }
  }

 private:
  static std::vector<uint32_t> others(std::vector<uint32_t> ranks, uint32_t but) {
    std::erase(ranks, but);
    return ranks;
  }
  Lane start(const Query& q, Schedule& s) const {
    std::vector<tutti_extent> sums;
    for (const uint32_t block : partials_) sums.push_back({q.class_of(block), 0});
    if (place_.size() > 1) s.declare_scratch(sums);
    return s.lane();
  }
  tutti_span sums(const RankRun& run) const {
    const auto at = std::lower_bound(partials_.begin(), partials_.end(), run.first) - partials_.begin();
    return scratch(static_cast<uint32_t>(at), run.count);
  }
  // The memory in which this rank has its share of others' blocks.
  tutti_span partial(const RankRun& run) const { return raw_ ? in(run.first, run.count) : sums(run); }
  // A sum of this rank's block comes.
  void add(uint32_t from) {
    auto step = lane_.recv_reduce(from, out(), begun_ ? out() : in(rank_));
    begun_ = true;
    if (--adds_left_ == 0) step.final();
  }
  // Sends what it has of others' blocks, and adds what comes of them; `first`: to its own input.
  void trade(const std::vector<RunMessage>& leaving, const std::vector<RunMessage>& coming, bool first) {
    by_turns(
        leaving, coming, [&](uint32_t peer, const RankRun& run) { lane_.send(peer, partial(run)); },
        [&](uint32_t peer, const RankRun& run) {
          lane_.recv_reduce(peer, sums(run), first ? in(run.first, run.count) : sums(run));
        });
  }

  const Place place_;
  const uint32_t rank_;
  uint32_t adds_left_;                    // to this rank's block
  const std::vector<uint32_t> partials_;  // the other blocks that it sums, rising: its scratch
  Lane lane_;
  bool raw_ = true;     // what it has of others' blocks is its input
  bool begun_ = false;  // something was added to its block
};
}  // namespace

void hierarchical_all_gather(const Query& q, Schedule& s, Nodes::By by) {
  const Place place(q, by);
  const Hosts& hosts = place.hosts;
  const Nodes& nodes = place.nodes;
  Lane lane = s.lane().level(1);
  if (!q.in_place) lane.copy(out(q.rank), in());
  for (uint32_t k = 1; k < hosts.count(); ++k) {
    const uint32_t to = hosts.next(k), from = hosts.prev(k);
    lane.level(k).send(hosts.members[to][place.me % hosts.size(to)], in());
    for (uint32_t i = place.me; i < hosts.size(from); i += place.size())
      lane.recv(hosts.members[from][i], out(hosts.members[from][i]));
  }
  const auto trade = [&](const std::vector<RunMessage>& leaving, const std::vector<RunMessage>& coming) {
    by_turns(
        leaving, coming, [&](uint32_t peer, const RankRun& run) { lane.send(peer, out(run.first, run.count)); },
        [&](uint32_t peer, const RankRun& run) { lane.recv(peer, out(run.first, run.count)); });
  };
  for (uint32_t k = 1; k < nodes.count(); ++k) {
    std::vector<RunMessage> leaving, coming;
    add_messages(leaving, place.mine[nodes.carer(nodes.next_node(k), nodes.place)], place.of_rank[place.me]);
    for (const uint32_t i : nodes.cares(nodes.place, nodes.prev_node(k)))
      add_messages(coming, place.mine[i], place.of_rank[i]);
    lane.level(hosts.count() + k);
    trade(leaving, coming);
  }
  for (uint32_t k = 1; k < nodes.size(); ++k) {
    std::vector<RunMessage> leaving, coming;
    add_messages(leaving, place.rank_at(nodes.next(k)), place.of_place[nodes.place]);
    add_messages(coming, place.rank_at(nodes.prev(k)), place.of_place[nodes.prev(k)]);
    lane.level(hosts.count() + nodes.most_nodes - 1 + k);
    trade(leaving, coming);
  }
}

void hierarchical_reduce_scatter(const Query& q, Schedule& s, Nodes::By by) { ReduceScatter(q, s, by).emit(); }

}  // namespace tutti::algorithms
