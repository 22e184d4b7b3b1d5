// SPDX-License-Identifier: Apache-2.0
#include "magnitudes.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string>
#include <string_view>

namespace tutti::conformance {
namespace {

struct Promise {
  const char* subject;
  const char* what;  // as in Magnitude
};
constexpr Promise promises[] = {
    {"transport", magnitude::ranks},           {"transport", magnitude::lanes},
    {"transport", magnitude::messages},        {"transport", magnitude::lane_bytes},
    {"transport", magnitude::buffer_bytes},    {"transport", magnitude::control_messages},
    {"transport", magnitude::registrations},   {"algorithm", magnitude::ranks},
    {"algorithm", magnitude::lanes},           {"device", magnitude::sources},
    {"device", magnitude::command_bytes},
};

}  // namespace

void print_magnitudes(const Run& run, bool verbose) {
  constexpr size_t few = 4;
  if (!run.manifest.cases.empty()) return;
  // Of each subject, kind and name: the largest number of each kind that was visited.
  std::map<std::pair<std::string, std::string>, std::map<std::string, uint64_t>> visited;
  for (const Result& result : run.results) {
    const std::string kind = axis_of(result, "subject");
    if (result.kind != "contract" || kind.empty() || kind == "plugin" || kind == "nccl") continue;
    auto& numbers = visited[{kind, axis_of(result, kind)}];
    if (result.outcome.verdict != Verdict::pass) continue;
    for (const auto& [what, most] : result.visits) numbers[what] = std::max(numbers[what], most);
  }
  if (visited.empty() || (visited.size() > few && !verbose)) return;
  fmt::print("Numbers that were visited; beyond them nothing is proved:\n");
  for (const auto& [subject, numbers] : visited) {
    std::string seen, unseen;
    for (const Promise& promise : promises) {
      if (subject.first != promise.subject) continue;
      const auto found = numbers.find(promise.what);
      if (found == numbers.end())
        unseen += fmt::format("{}{}", unseen.empty() ? "" : ", ", promise.what);
      else
        seen += fmt::format("{}{} to {}", seen.empty() ? "" : ", ", promise.what, found->second);
    }
    fmt::print("  {} {}: {}{}{}{}\n", subject.first, subject.second, seen, seen.empty() || unseen.empty() ? "" : "; ",
               unseen.empty() ? "" : "not proved: ", unseen);
  }
}

}  // namespace tutti::conformance
