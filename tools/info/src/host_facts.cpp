// SPDX-License-Identifier: Apache-2.0
#include "host_facts.hpp"

#include <sched.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <string_view>
#include <tutti/sdk/text.hpp>

namespace info {
namespace {

std::string first_line(const std::string& path) {
  std::string line;
  if (std::ifstream file(path); file) std::getline(file, line);
  return line;
}

std::string processor_name() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name"))
      if (const size_t colon = line.find(": "); colon != line.npos) return line.substr(colon + 2);
  return "";
}

std::vector<Cache> caches_of_first_cpu() {
  std::vector<Cache> caches;
  for (int index = 0;; ++index) {
    const std::string folder = "/sys/devices/system/cpu/cpu0/cache/index" + std::to_string(index) + "/";
    const std::string level = first_line(folder + "level");
    if (level.empty()) return caches;
    std::string type = first_line(folder + "type");
    std::transform(type.begin(), type.end(), type.begin(), tutti::to_lower);
    caches.push_back({"L" + level + " " + type, first_line(folder + "size"), first_line(folder + "shared_cpu_list")});
  }
}

}  // namespace

HostFacts host_facts() {
  HostFacts facts;
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  facts.name = name;
  const tutti::HostIdentity identity = tutti::host_identity();
  facts.key = identity.key;
  facts.key_source = identity.given ? "TUTTI_HOST_ID" : "boot id and network namespace";
  facts.processor = processor_name();
  facts.online_cores = static_cast<uint32_t>(std::max(0L, sysconf(_SC_NPROCESSORS_ONLN)));
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) == 0) facts.usable_cores = static_cast<uint32_t>(CPU_COUNT(&usable));
  facts.memory_bytes = static_cast<uint64_t>(std::max(0L, sysconf(_SC_PHYS_PAGES))) *
                       static_cast<uint64_t>(std::max(0L, sysconf(_SC_PAGESIZE)));
  facts.caches = caches_of_first_cpu();
  return facts;
}

std::vector<std::pair<std::string, std::string>> settings() {
  std::vector<std::pair<std::string, std::string>> result;
  for (char** entry = environ; *entry; ++entry) {
    const std::string_view text = *entry;
    const size_t equals = text.find('=');
    if (!text.starts_with("TUTTI_") || equals == text.npos) continue;
    const std::string_view name = text.substr(0, equals), value = text.substr(equals + 1);
    const bool hidden = name.find("SECRET") != name.npos || value.starts_with("id:");
    result.emplace_back(name, hidden ? "(hidden)" : value);
  }
  std::sort(result.begin(), result.end());
  return result;
}

}  // namespace info
