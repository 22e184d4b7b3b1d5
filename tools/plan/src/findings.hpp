// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/schedule.h>

#include <string>
#include <vector>

namespace tutti::plan {

// The statements of a successful proof, one sentence per line.
std::string findings(const Problem& problem, const std::vector<Schedule>& schedules, const Proof& proof);

// The bytes and messages that leave hosts. The problem has some.
struct HostTraffic {
  uint64_t messages = 0;
  double most_blocks = 0;  // of the busiest host
};
HostTraffic host_traffic(const Problem& problem, const std::vector<Schedule>& schedules);

// "ring all_reduce on 4 ranks", with root and in-place where they matter.
std::string title(const Problem& problem, const std::string& algorithm);

}  // namespace tutti::plan
