// SPDX-License-Identifier: Apache-2.0
#include "engine/call_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/rank_list.hpp"

namespace tutti::core {
namespace {

struct Fixed {
  uint64_t issued, oldest;
  uint32_t step, peer;
  uint64_t calls;
};

}  // namespace

std::string CallReport::encode() const {
  const Fixed fixed{issued, oldest, step, peer, calls.size()};
  std::string bytes(sizeof fixed + calls.size() * sizeof(Call), '\0');
  std::memcpy(bytes.data(), &fixed, sizeof fixed);
  if (!calls.empty()) std::memcpy(bytes.data() + sizeof fixed, calls.data(), calls.size() * sizeof(Call));
  return bytes;
}

std::optional<CallReport> CallReport::decode(std::string_view bytes) {
  Fixed fixed;
  if (bytes.size() < sizeof fixed) return std::nullopt;
  std::memcpy(&fixed, bytes.data(), sizeof fixed);
  if (fixed.calls > most_calls_reported || bytes.size() != sizeof fixed + fixed.calls * sizeof(Call))
    return std::nullopt;
  CallReport report{fixed.issued, fixed.oldest, fixed.step, fixed.peer, std::vector<Call>(fixed.calls)};
  if (fixed.calls) std::memcpy(report.calls.data(), bytes.data() + sizeof fixed, fixed.calls * sizeof(Call));
  return report;
}

const Call* CallReport::find(uint64_t sequence) const {
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const Call& c) { return c.sequence == sequence; });
  return found == calls.end() ? nullptr : &*found;
}

Stall explain_stall(uint32_t rank, uint64_t sequence, const std::vector<std::optional<CallReport>>& reports) {
  // Ranks whose calls differed may have gone on for a while: the first difference is the cause.
  if (rank < reports.size() && reports[rank])
    for (const Call& mine : reports[rank]->calls)
      for (uint32_t r = 0; r < reports.size(); ++r)
        if (const Call* theirs = reports[r] ? reports[r]->find(mine.sequence) : nullptr; theirs && !(*theirs == mine))
          return {r, true, difference_of(r, *theirs, rank, mine).reason};
  std::vector<uint32_t> behind, waiting;
  for (uint32_t r = 0; r < reports.size(); ++r) {
    if (!reports[r]) continue;
    if (reports[r]->issued <= sequence) behind.push_back(r);
    if (r != rank && reports[r]->oldest == sequence && reports[r]->peer != UINT32_MAX) waiting.push_back(r);
  }
  if (!behind.empty()) {
    const CallReport& first = *reports[behind.front()];
    std::string text = fmt::format("has not entered operation #{}", sequence);
    if (!first.calls.empty())
      text += fmt::format(": its last was #{}, {}", first.calls.back().sequence, call_text(first.calls.back()));
    if (behind.size() > 1) text += fmt::format(" (in all {} have not)", rank_list(behind));
    return {behind.front(), false, text};
  }
  if (waiting.empty()) return {};
  std::string text = "all ranks have entered it";
  constexpr size_t most_named = 4;
  for (size_t i = 0; i < std::min(waiting.size(), most_named); ++i)
    text += fmt::format("{} rank {} is in step {} with rank {}", i ? "," : ":", waiting[i], reports[waiting[i]]->step,
                        reports[waiting[i]]->peer);
  return {std::nullopt, false, text};
}

}  // namespace tutti::core
