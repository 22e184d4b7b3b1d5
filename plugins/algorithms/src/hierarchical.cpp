// SPDX-License-Identifier: Apache-2.0
//
// hierarchical: every rank of a host takes part in what leaves it, each on a rail of its own.
//
// all_reduce                  hierarchical_all_reduce.hpp
// all_gather, reduce_scatter  one message of a block to each other host: hierarchical_blocks.hpp
// all_to_all                  one message from each host to each other: hierarchical_all_to_all.hpp
// scans                       inside hosts, over their last ranks, inside hosts: hierarchical_scan.hpp
//
// Inside hosts exchanges are direct: rank i sends to i+k while it receives from i-k. three_level.cpp has the same for
// hosts of several NUMA nodes.
#include <tutti/sdk/algorithm.hpp>

#include "algorithms.hpp"
#include "hierarchical_all_reduce.hpp"
#include "hierarchical_all_to_all.hpp"
#include "hierarchical_blocks.hpp"
#include "hierarchical_scan.hpp"
#include "hosts.hpp"

namespace tutti::algorithms {
namespace {
using namespace tutti::sdk;

struct Hierarchical {
  static constexpr const char* name = "hierarchical";
  static constexpr const char* summary = "inside hosts, between hosts on a rail for each rank, inside hosts";
  static constexpr uint64_t collectives =
      mask({TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL, TUTTI_ALL_GATHER_V,
            TUTTI_REDUCE_SCATTER_V, TUTTI_SCAN, TUTTI_EXCLUSIVE_SCAN});
  static std::string supports(const Query& q) {
    if (q.form() == TUTTI_ALL_GATHER || q.form() == TUTTI_REDUCE_SCATTER) return "";
    if (q.collective == TUTTI_SCAN || q.collective == TUTTI_EXCLUSIVE_SCAN) return refuses_hierarchical_scan(q);
    const Hosts hosts(q);
    if (q.collective == TUTTI_ALL_TO_ALL) return q.n > 1 && hosts.count() == 1 ? "all ranks are on one host" : "";
    return refuses_hierarchical_all_reduce(hosts);
  }
  static void schedule(const Query& q, Schedule& s) {
    const bool blocks = q.form() == TUTTI_ALL_GATHER || q.form() == TUTTI_REDUCE_SCATTER;
    if (blocks || q.n == 1) s.sliced(1);  // messages of one rank to another on a lane have one level
    if (alone(q, s)) return;
    switch (q.form()) {
      case TUTTI_ALL_REDUCE:
        return hierarchical_all_reduce(q, s, Nodes::By::host);
      case TUTTI_ALL_GATHER:
        return hierarchical_all_gather(q, s, Nodes::By::host);
      case TUTTI_REDUCE_SCATTER:
        return hierarchical_reduce_scatter(q, s, Nodes::By::host);
      case TUTTI_ALL_TO_ALL:
        return hierarchical_all_to_all(q, s);
      case TUTTI_SCAN:
      case TUTTI_EXCLUSIVE_SCAN:
        return hierarchical_scan(q, s);
    }
  }
};
}  // namespace

const tutti_algorithm hierarchical = make_algorithm<Hierarchical>();

}  // namespace tutti::algorithms
