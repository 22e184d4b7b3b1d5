// SPDX-License-Identifier: Apache-2.0
#include <tutti/schedule.h>

#include <algorithm>
#include <numeric>

namespace tutti {

std::vector<uint32_t> place_on_hosts(std::span<const uint32_t> sizes, bool cyclic) {
  std::vector<uint32_t> hosts;
  if (!cyclic) {
    for (uint32_t host = 0; host < sizes.size(); ++host) hosts.insert(hosts.end(), sizes[host], host);
    return hosts;
  }
  const uint32_t largest = sizes.empty() ? 0 : *std::ranges::max_element(sizes);
  for (uint32_t turn = 0; turn < largest; ++turn)
    for (uint32_t host = 0; host < sizes.size(); ++host)
      if (turn < sizes[host]) hosts.push_back(host);
  return hosts;
}

std::vector<uint32_t> random_hosts(uint32_t nranks, uint64_t seed) {
  auto next = [state = seed]() mutable {  // splitmix64
    uint64_t z = state += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  };
  constexpr uint32_t unknown = UINT32_MAX;
  std::vector<uint32_t> numbers(nranks ? 1 + next() % nranks : 0, unknown), hosts(nranks);
  uint32_t seen = 0;
  for (uint32_t& host : hosts) {
    uint32_t& number = numbers[next() % numbers.size()];
    if (number == unknown) number = seen++;
    host = number;
  }
  return hosts;
}

std::shared_ptr<const tutti_topology> topology_of_nodes(std::span<const uint32_t> hosts,
                                                        std::span<const int32_t> nodes) {
  struct Places {
    std::vector<uint32_t> hosts, processes, devices;
    std::vector<int32_t> nodes;
    tutti_topology table{};
  };
  const auto places = std::make_shared<Places>();
  const size_t n = nodes.size();
  places->hosts.assign(hosts.begin(), hosts.end());
  places->hosts.resize(n);  // none: all on one host
  places->nodes.assign(nodes.begin(), nodes.end());
  places->processes.resize(n);
  std::iota(places->processes.begin(), places->processes.end(), 0);
  places->devices.assign(n, UINT32_MAX);
  tutti_topology& table = places->table;
  table.struct_size = sizeof table;
  table.nranks = static_cast<uint32_t>(n);
  table.host_of_rank = places->hosts.data();
  table.process_of_rank = places->processes.data();
  table.device_of_rank = places->devices.data();
  table.numa_of_rank = places->nodes.data();
  table.link = [](void*, uint32_t, uint32_t, tutti_link_figures*) -> tutti_status { return TUTTI_NOT_SUPPORTED; };
  return {places, &table};
}

}  // namespace tutti
