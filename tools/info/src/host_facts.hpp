// SPDX-License-Identifier: Apache-2.0
//
// The properties of this host that matter to collectives.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace info {

struct Cache {
  std::string name;    // "L1 data"
  std::string size;    // "32K"
  std::string shared;  // the CPUs that share it with CPU 0: "0-1"
};

struct HostFacts {
  std::string name;
  std::string key;  // ranks with equal keys are on one host
  std::string key_source;
  std::string processor;
  uint32_t online_cores = 0;
  uint32_t usable_cores = 0;  // that this process may run on
  uint64_t memory_bytes = 0;
  std::vector<Cache> caches;  // of CPU 0
};

// Reads them from the operating system; what it does not tell stays empty.
HostFacts host_facts();

// The TUTTI_* variables of the environment, sorted; values that hold the job's secret are hidden.
std::vector<std::pair<std::string, std::string>> settings();

}  // namespace info
