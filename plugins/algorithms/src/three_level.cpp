// SPDX-License-Identifier: Apache-2.0
//
// three_level: `hierarchical` and `leaders` for hosts whose ranks are on several NUMA nodes, as the topology tells:
// inside nodes, between the nodes of a host, between hosts, and back. A sum or a gathered block crosses between two
// nodes once, where `hierarchical` sends it once for each rank of the node. In an all_reduce a rank sends s + D - 2
// messages to its host each way in place of s D - 1, for D nodes of s ranks. The trees of `leaders` cross as often as
// ranks happen to lie; here D - 1 messages of a host do.
//
// all_reduce                                 hierarchical_all_reduce.hpp
// all_gather, reduce_scatter                 hierarchical_blocks.hpp
// broadcast, reduce, gather, scatter,        leader_trees.hpp
// barrier
//
// An all_to_all and the scans have no third level: each block of an all_to_all crosses once as it is, and a scan has to
// keep the order of ranks.
//
// Hosts and nodes may be uneven. Ranks whose node is not known are a node of their own.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "hierarchical_all_reduce.hpp"
#include "hierarchical_blocks.hpp"
#include "hosts.hpp"
#include "leader_trees.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

struct ThreeLevel {
  static constexpr const char* name = "three_level";
  static constexpr const char* summary = "inside NUMA nodes, between those of a host, between hosts, and back";
  static constexpr uint64_t collectives =
      mask({TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER, TUTTI_ALL_GATHER_V, TUTTI_REDUCE_SCATTER_V,
            TUTTI_BROADCAST, TUTTI_REDUCE, TUTTI_GATHER, TUTTI_SCATTER, TUTTI_BARRIER});
  static std::string supports(const Query& q) {
    if (q.n == 1) return "";
    const Hosts hosts(q);
    if (!numa_of_rank(q)) return "the NUMA nodes of the ranks are not known";
    if (Nodes(q, hosts, Nodes::By::numa).most_nodes == 1) return "no host has ranks on several NUMA nodes";
    if (q.collective == TUTTI_BARRIER && q.lanes < 2) return "needs 2 lanes, there is 1";
    return q.form() == TUTTI_ALL_REDUCE ? refuses_hierarchical_all_reduce(hosts) : "";
  }
  static void schedule(const Query& q, Schedule& s) {
    // Messages of one rank to another have one level, but in all_reduce. A gather waits for the root's processor.
    if (q.n == 1 || (q.form() != TUTTI_ALL_REDUCE && q.form() != TUTTI_GATHER)) s.sliced(1);
    if (alone(q, s)) return;
    switch (q.form()) {
      case TUTTI_ALL_REDUCE:
        return hierarchical_all_reduce(q, s, Nodes::By::numa);
      case TUTTI_ALL_GATHER:
        return hierarchical_all_gather(q, s, Nodes::By::numa);
      case TUTTI_REDUCE_SCATTER:
        return hierarchical_reduce_scatter(q, s, Nodes::By::numa);
      default:
        return over_leaders(q, s, Nodes::By::numa);
    }
  }
};
}  // namespace

const tutti_algorithm three_level = make_algorithm<ThreeLevel>();

}  // namespace tutti::algorithms
