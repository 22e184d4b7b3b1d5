// SPDX-License-Identifier: Apache-2.0
#include "topology_network.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <stdexcept>

#include "request.hpp"

namespace tutti::plan {

TopologyFile read_topology(const std::string& path) {
  const std::string text = text_of_file(path, "topology");
  try {
    return TopologyFile(text);
  } catch (const std::runtime_error& wrong) {
    throw WrongRequest(fmt::format("{}: {}", path, wrong.what()));
  }
}

NetworkFile network_of_topology(const std::string& path) {
  const TopologyFile topology = read_topology(path);
  const std::vector<uint32_t>& hosts = topology.host_of_rank();
  const uint32_t nranks = topology.nranks(), count = *std::ranges::max_element(hosts) + 1;
  NetworkFile network;
  network.path = path;
  network.kind = "topology";
  simulation::Fabric& fabric = network.fabric;
  fabric.nranks = nranks;
  fabric.ranks_per_host = nranks / count;
  fabric.cyclic = fabric.ranks_per_host > 1 && count > 1 && hosts[1] == 1;
  network.most_hosts = count;
  for (uint32_t rank = 0; rank < nranks; ++rank)
    if (nranks % count || hosts[rank] != (fabric.cyclic ? rank % count : rank / fabric.ranks_per_host))
      throw WrongRequest(
          fmt::format("{}: {} ranks on {} hosts: a simulation takes hosts of equal size, whose ranks follow each other "
                      "or are dealt "
                      "out in turn; rank {} on host {} does not fit (tutti-info --explain --file takes any)",
                      path, nranks, count, rank, hosts[rank]));
  // The first rank of host 0, and others of its own host and of the next.
  const auto link_to = [&](uint32_t host) {
    for (uint32_t other = 1; other < nranks; ++other)
      if (hosts[other] == host) {
        const TopologyFile::Link link = topology.link(0, other);
        return simulation::Fabric::Link{link.latency, link.bandwidth};
      }
    return simulation::Fabric::Link{0, 1e12};  // no message takes it
  };
  fabric.inside = link_to(0);
  fabric.nic = link_to(1);
  const double host = topology.host_bandwidth(0);
  if (count > 1)
    fabric.nics =
        std::clamp<uint32_t>(static_cast<uint32_t>(std::lround(host / fabric.nic.bandwidth)), 1, fabric.ranks_per_host);
  const CostModel usual;
  network.processor.reduce_per_byte = usual.reduce_per_byte;
  network.processor.copy_per_byte = usual.copy_per_byte;
  network.processor.fragment = 64 << 10;
  return network;
}

}  // namespace tutti::plan
