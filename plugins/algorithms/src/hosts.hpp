// SPDX-License-Identifier: Apache-2.0
//
// The ranks of a query by host: any number of hosts of any sizes, in any placement.
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

}  // namespace tutti::algorithms
