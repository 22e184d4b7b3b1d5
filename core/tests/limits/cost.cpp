// SPDX-License-Identifier: Apache-2.0
#include "cost.hpp"

#include <filesystem>
#include <fstream>
#include <stdexcept>
#include <string>

namespace limits {

Cost operator-(const Cost& a, const Cost& b) {
  const auto less = [](uint64_t x, uint64_t y) { return x > y ? x - y : 0; };
  return {less(a.descriptors, b.descriptors), less(a.kib, b.kib)};
}

Cost cost_of_process() {
  Cost cost;
  const std::filesystem::directory_iterator open("/proc/self/fd");
  cost.descriptors = static_cast<uint64_t>(std::distance(begin(open), end(open))) - 1;  // this directory
  std::ifstream memory("/proc/self/smaps_rollup");
  for (std::string word; memory >> word;)
    if (word == "Pss:" && memory >> cost.kib) return cost;
  throw std::runtime_error("/proc/self/smaps_rollup has no Pss");
}

}  // namespace limits
