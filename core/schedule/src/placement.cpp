// SPDX-License-Identifier: Apache-2.0
#include <tutti/schedule.h>

#include <algorithm>

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

}  // namespace tutti
