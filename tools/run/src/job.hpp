// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace tuttirun {

inline constexpr uint32_t kMaxRanks = 4096;  // two pipes each

// Exit statuses of tuttirun itself, as shells and timeout(1) use them.
inline constexpr int kExitUsage = 2;
inline constexpr int kExitTimeout = 124;
inline constexpr int kExitCannotRun = 126;
inline constexpr int kExitNotFound = 127;

// The job that the command line describes.
struct Job {
  uint32_t ranks = 0;
  uint32_t hosts = 0;  // network namespaces; 0: none
  double timeout = 0;  // seconds; 0: none
  double grace = 5;    // seconds between SIGTERM and SIGKILL
  bool label = true;
  bool survive = false;  // a rank that fails does not end the others
  bool input = false;    // rank 0 gets tuttirun's standard input
  std::vector<std::pair<std::string, std::string>> variables;
  std::vector<std::string> command;

  // Ranks are spread over hosts in contiguous groups, as evenly as possible.
  uint32_t first_of_host(uint32_t host) const {
    return static_cast<uint32_t>(uint64_t{host} * ranks / (hosts == 0 ? 1 : hosts));
  }
  uint32_t host_of(uint32_t rank) const {
    uint32_t host = 0;
    while (host + 1 < hosts && first_of_host(host + 1) <= rank) ++host;
    return host;
  }
};

}  // namespace tuttirun
