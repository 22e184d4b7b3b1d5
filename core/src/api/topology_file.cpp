// SPDX-License-Identifier: Apache-2.0
//
// The class TopologyFile: what a job on the ranks of a topology file would do.
#include "topology/topology_file.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <tutti/topology.hpp>
#include <vector>

#include "comm/configuration.hpp"
#include "engine/choose/explain.hpp"
#include "engine/choose/selector.hpp"
#include "engine/choose/tuning.hpp"

namespace tutti {

using namespace core;

struct TopologyFile::State {
  explicit State(const std::string& text) : topology(read_topology_file(text)), hosts(topology.host_costs()) {
    std::string why;
    for (const auto& [a, b] : topology.pairs_of_each_kind())
      if (!topology.transport_of(a, b, &why)) throw std::runtime_error(why);
  }
  const Topology topology;
  const std::vector<HostCost> hosts;
};

TopologyFile::TopologyFile(const std::string& text) try : state_(std::make_unique<State>(text)) {
} catch (const std::bad_alloc&) {
  throw;
} catch (const std::exception& wrong) {
  throw std::runtime_error(fmt::format("{}; docs/topology.md lists the keys and their values", wrong.what()));
}
TopologyFile::TopologyFile(TopologyFile&&) noexcept = default;
TopologyFile::~TopologyFile() = default;

const std::vector<uint32_t>& TopologyFile::host_of_rank() const { return state_->topology.host_of_rank(); }

TopologyFile::Rank TopologyFile::rank(uint32_t rank) const {
  const RankDescription& of = state_->topology.rank(rank);
  Rank shown{of.host, of.cores, of.device.numa >= 0 ? of.device.numa : of.numa, "", {}};
  if (!of.device.kind.empty()) shown.device = fmt::format("{} {}", of.device.kind, of.device.index);
  for (const TransportOffer& offer : of.transports)
    shown.rails.insert(shown.rails.end(), offer.rails.begin(), offer.rails.end());
  return shown;
}

TopologyFile::Link TopologyFile::link(uint32_t from, uint32_t to) const {
  const TransportOffer& over = *state_->topology.transport_of(from, to);
  const LinkCost cost = state_->topology.cost(from, to);
  return {over.name, cost.latency, 1 / cost.per_byte};
}

double TopologyFile::host_bandwidth(uint32_t host) const {
  const double per_byte = state_->hosts.at(host).per_byte;
  return per_byte > 0 ? 1 / per_byte : 0;
}

std::vector<std::string> TopologyFile::transports() const { return state_->topology.transports(); }

std::string TopologyFile::text() const { return state_->topology.text(); }

std::string TopologyFile::explain(uint32_t collective, uint64_t count, uint32_t dtype) const {
  const Configuration settings(tutti_comm_config{sizeof(tutti_comm_config)});
  Selector selector(state_->topology, AlgorithmFilter(settings.algorithms), list_algorithms(), settings.lanes,
                    settings.scratch_limit, {nullptr, Tuning::read(settings.tuning_file)});
  return core::explain(selector, state_->topology, collective, count, dtype, settings.order);
}

}  // namespace tutti
