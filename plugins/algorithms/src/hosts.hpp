// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a query by host, and those of a host by node: any number of hosts and nodes of any sizes, in any
// placement.
#pragma once

#include <tutti/sdk/algorithm.hpp>

namespace tutti::algorithms {

struct Hosts {
  explicit Hosts(const sdk::Query& q) : index(q.n) {
    for (uint32_t rank = 0; rank < q.n; ++rank) {
      const uint32_t host = q.host_of_rank.empty() ? 0 : q.host_of_rank[rank];
      if (host >= members.size()) members.resize(host + 1);
      index[rank] = static_cast<uint32_t>(members[host].size());
      members[host].push_back(rank);
    }
    for (const auto& ranks : members) largest = std::max(largest, static_cast<uint32_t>(ranks.size()));
    own = q.host_of_rank.empty() ? 0 : q.host_of_rank[q.rank];
  }
  uint32_t count() const { return static_cast<uint32_t>(members.size()); }
  uint32_t size(uint32_t host) const { return static_cast<uint32_t>(members[host].size()); }
  // The host that is `k` after or before the own one.
  uint32_t next(uint32_t k) const { return (own + k) % count(); }
  uint32_t prev(uint32_t k) const { return (own + count() - k) % count(); }

  std::vector<std::vector<uint32_t>> members;  // the ranks of each host, rising
  std::vector<uint32_t> index;                 // of each rank among those of its host
  uint32_t largest = 0;                        // the most ranks of a host
  uint32_t own = 0;                            // the query's rank's host
};

// Consecutive ranks of a rising list.
struct RankRun {
  uint32_t first, count;
};
inline std::vector<RankRun> runs_of(std::span<const uint32_t> ranks) {
  std::vector<RankRun> runs;
  for (const uint32_t rank : ranks)
    if (runs.empty() || runs.back().first + runs.back().count != rank)
      runs.push_back({rank, 1});
    else
      ++runs.back().count;
  return runs;
}

// The query's NUMA nodes; nullptr: not known.
inline const int32_t* numa_of_rank(const sdk::Query& q) {
  return q.topology && TUTTI_HAS_FIELD(tutti_topology, q.topology, numa_of_rank) ? q.topology->numa_of_rank : nullptr;
}

// Hosts whose ranks are not in rising order: the first of each NUMA node, then the second of each, and so on.
inline Hosts dealt_from_nodes(const sdk::Query& q) {
  Hosts hosts(q);
  const int32_t* const numa = numa_of_rank(q);
  for (auto& ranks : hosts.members) {
    std::vector<std::pair<uint32_t, uint32_t>> places;  // in the node, and rank
    for (auto rank = ranks.begin(); numa && rank != ranks.end(); ++rank) {
      const auto same = [&](uint32_t other) { return numa[other] == numa[*rank]; };
      places.emplace_back(std::count_if(ranks.begin(), rank, same), *rank);
    }
    std::sort(places.begin(), places.end());
    for (uint32_t i = 0; i < places.size(); ++i) {
      ranks[i] = places[i].second;
      hosts.index[ranks[i]] = i;
    }
  }
  return hosts;
}

// The ranks of the query's rank's host in groups: by NUMA node, or all of them in one.
class Nodes {
 public:
  enum class By { host, numa };
  Nodes(const sdk::Query& q, const Hosts& hosts, By by) {
    const int32_t* const numa = by == By::numa ? numa_of_rank(q) : nullptr;
    for (uint32_t host = 0; host < hosts.count(); ++host) {
      std::vector<int32_t> known;  // the nodes so far, in order of first rank
      std::vector<std::vector<uint32_t>> groups;
      for (uint32_t i = 0; i < hosts.size(host); ++i) {
        const uint32_t rank = hosts.members[host][i];
        const int32_t node = numa ? numa[rank] : 0;
        const auto group = static_cast<size_t>(std::find(known.begin(), known.end(), node) - known.begin());
        if (group == known.size()) {
          known.push_back(node);
          groups.emplace_back();
        }
        if (rank == q.rank) {
          own = static_cast<uint32_t>(group);
          place = static_cast<uint32_t>(groups[group].size());
        }
        groups[group].push_back(i);
      }
      most_nodes = std::max(most_nodes, static_cast<uint32_t>(groups.size()));
      for (const auto& group : groups) most_members = std::max(most_members, static_cast<uint32_t>(group.size()));
      if (host == hosts.own) members = std::move(groups);
    }
  }

  uint32_t count() const { return static_cast<uint32_t>(members.size()); }
  uint32_t size() const { return static_cast<uint32_t>(members[own].size()); }
  // The place in the node, and the node, that is `k` after or before the own one.
  uint32_t next(uint32_t k) const { return (place + k) % size(); }
  uint32_t prev(uint32_t k) const { return (place + size() - k) % size(); }
  uint32_t next_node(uint32_t k) const { return (own + k) % count(); }
  uint32_t prev_node(uint32_t k) const { return (own + count() - k) % count(); }
  // The rank of a node that takes care of the share of another node's rank at `of`.
  uint32_t carer(uint32_t node, uint32_t of) const { return members[node][of % members[node].size()]; }
  // The ranks of whose shares the rank at `at` of the own node takes care, rising: itself, and ranks of the other
  // nodes.
  std::vector<uint32_t> cares(uint32_t at) const {
    std::vector<uint32_t> list{members[own][at]};
    for (uint32_t node = 0; node < count(); ++node)
      if (node != own) append(list, cares(at, node));
    std::sort(list.begin(), list.end());
    return list;
  }
  // The same, within another node.
  std::vector<uint32_t> cares(uint32_t at, uint32_t node) const {
    std::vector<uint32_t> list;
    for (size_t i = at; i < members[node].size(); i += size()) list.push_back(members[node][i]);
    return list;
  }

  std::vector<std::vector<uint32_t>> members;  // of each node: the indices of its ranks in the host, rising
  uint32_t own = 0, place = 0;                 // the query's rank's node, and its place among the node's ranks
  uint32_t most_nodes = 1, most_members = 1;   // of any host, and of any node

 private:
  static void append(std::vector<uint32_t>& list, const std::vector<uint32_t>& more) {
    list.insert(list.end(), more.begin(), more.end());
  }
};

// A message of consecutive ranks' blocks or parts to or from another rank.
struct RunMessage {
  uint32_t peer;
  RankRun run;
};
inline void add_messages(std::vector<RunMessage>& messages, uint32_t peer, std::span<const uint32_t> ranks) {
  for (const RankRun& run : runs_of(ranks)) messages.push_back({peer, run});
}
// Sends and receives by turns: with two steps in flight no cycle of ranks can wait for each other.
template <typename Send, typename Receive>
void by_turns(const std::vector<RunMessage>& leaving, const std::vector<RunMessage>& coming, Send send,
              Receive receive) {
  for (size_t i = 0; i < std::max(leaving.size(), coming.size()); ++i) {
    if (i < leaving.size()) send(leaving[i].peer, leaving[i].run);
    if (i < coming.size()) receive(coming[i].peer, coming[i].run);
  }
}

}  // namespace tutti::algorithms
