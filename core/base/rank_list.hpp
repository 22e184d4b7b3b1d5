// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tutti::core {

// "rank 3", "ranks 1, 2 and 5-9": how messages name ranks. `ranks` ascends. After kMaxRuns runs the rest is counted.
inline std::string rank_list(const std::vector<uint32_t>& ranks) {
  constexpr size_t kMaxRuns = 16;
  if (ranks.empty()) return "no rank";
  std::vector<std::string> runs;
  size_t shown = 0;
  while (shown < ranks.size() && runs.size() < kMaxRuns) {
    size_t end = shown + 1;
    while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1) ++end;
    if (end - shown == 2) end = shown + 1;
    runs.push_back(std::to_string(ranks[shown]));
    if (end - shown > 1) runs.back() += "-" + std::to_string(ranks[end - 1]);
    shown = end;
  }
  if (shown < ranks.size()) runs.push_back(std::to_string(ranks.size() - shown) + " more");
  std::string text = ranks.size() == 1 ? "rank " : "ranks ";
  for (size_t i = 0; i < runs.size(); ++i) text += (i == 0 ? "" : i + 1 == runs.size() ? " and " : ", ") + runs[i];
  return text;
}

}  // namespace tutti::core
