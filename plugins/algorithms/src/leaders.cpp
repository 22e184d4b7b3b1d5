// SPDX-License-Identifier: Apache-2.0
//
// leaders: one rank of each host, its first or the root, speaks for the host: the fewest messages between hosts.
// leader_trees.hpp has what they do. three_level.cpp has the same for hosts of several NUMA nodes.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "leader_trees.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

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
    over_leaders(q, s, Nodes::By::host);
  }
};
}  // namespace

const tutti_algorithm leaders = make_algorithm<Leaders>();

}  // namespace tutti::algorithms
