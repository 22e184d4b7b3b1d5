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

}  // namespace tutti
