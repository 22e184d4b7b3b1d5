// SPDX-License-Identifier: Apache-2.0
#include "base/numa.hpp"

#include <fmt/format.h>
#include <sched.h>

#include <fstream>
#include <tutti/base/text.hpp>

namespace tutti::core {

bool is_in_list(std::string_view list, uint32_t number) {
  for (uint32_t first = 0, last = 0; take_number(list, first); take_word(list, ",")) {
    last = first;
    if (take_word(list, "-") && !take_number(list, last)) return false;
    if (number >= first && number <= last) return true;
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
  if (address.empty() || address.find('/') != std::string::npos) return -1;
  std::ifstream file(fmt::format("/sys/bus/pci/devices/{}/numa_node", address));
  std::string line;
  std::getline(file, line);
  std::string_view text = line;
  int32_t node = -1;
  return take_number(text, node) ? node : -1;
}

}  // namespace tutti::core
