// SPDX-License-Identifier: Apache-2.0
#include "fabric/numa.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <cstdio>
#include <fstream>
#include <sstream>

namespace tutti::core {

bool is_in_list(const std::string& list, uint32_t number) {
  std::istringstream parts(list);
  for (std::string part; std::getline(parts, part, ',');) {
    unsigned first = 0, last = 0;
    const int read = std::sscanf(part.c_str(), "%u-%u", &first, &last);
    if (read >= 1 && number >= first && number <= (read == 2 ? last : first)) return true;
  }
  return false;
}

int32_t numa_of_process() {
  constexpr int32_t most_nodes = 1024;
  cpu_set_t usable;
  if (sched_getaffinity(0, sizeof usable, &usable) != 0) return -1;
  for (int32_t node = 0; node < most_nodes; ++node) {
    std::ifstream file(fmt::format("/sys/devices/system/node/node{}/cpulist", node));
    std::string list;
    if (!std::getline(file, list)) continue;
    bool all = true, any = false;
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (!CPU_ISSET(cpu, &usable)) continue;
      const bool here = is_in_list(list, cpu);
      any |= here;
      all &= here;
    }
    if (any) return all ? node : -1;
  }
  return -1;
}

int32_t numa_of_pci(const std::string& address) {
  int32_t node = -1;
  if (address.empty() || address.find('/') != std::string::npos) return -1;
  std::ifstream file(fmt::format("/sys/bus/pci/devices/{}/numa_node", address));
  return file >> node ? node : -1;
}

}  // namespace tutti::core
