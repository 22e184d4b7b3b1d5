// SPDX-License-Identifier: Apache-2.0
#include "judge.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace doctor {

Findings judge_rank(const Facts& facts) {
  Findings out;
  judge_limits(facts, out);
  judge_devices(facts, out);
  return out;
}

Findings judge(const Job& job) {
  Findings all;
  std::map<uint32_t, uint32_t> hosts;
  for (const Facts& facts : job.ranks) hosts[facts.rank] = facts.host_number;
  const auto key = [&](const Finding& f) { return std::pair(f.about, f.ranks.empty() ? 0 : hosts[f.ranks.front()]); };
  const auto add = [&](Finding found) {
    const auto same = std::find_if(all.begin(), all.end(), [&](const Finding& other) {
      return other.name == found.name && other.severity == found.severity &&
             (other.seen == found.seen || (!found.about.empty() && key(other) == key(found)));
    });
    if (same == all.end())
      all.push_back(std::move(found));
    else
      same->ranks.insert(same->ranks.end(), found.ranks.begin(), found.ranks.end());
  };
  for (Finding& found : judge_job(job)) add(std::move(found));
  for (const Facts& facts : job.ranks)
    for (Finding& found : judge_rank(facts)) {
      found.ranks = {facts.rank};
      add(std::move(found));
    }
  std::stable_sort(all.begin(), all.end(), [](const Finding& a, const Finding& b) { return a.severity < b.severity; });
  return all;
}

std::string bytes_text(uint64_t bytes) {
  constexpr const char* units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  double value = static_cast<double>(bytes);
  size_t unit = 0;
  for (; value >= 1024 && unit + 1 < std::size(units); ++unit) value /= 1024;
  return fmt::format("{:.{}f} {}", value, value < 10 && unit > 0 ? 1 : 0, units[unit]);
}

std::string list_text(const std::vector<uint32_t>& numbers) {
  std::string text;
  for (size_t i = 0; i < numbers.size();) {
    size_t last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    text += fmt::format("{}{}", text.empty() ? "" : ",", numbers[i]);
    if (last > i) text += fmt::format("-{}", numbers[last]);
    i = last + 1;
  }
  return text;
}

}  // namespace doctor
