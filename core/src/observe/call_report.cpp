// SPDX-License-Identifier: Apache-2.0
#include "observe/call_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "bootstrap/rank_list.hpp"

namespace tutti::core {
namespace {

struct Fixed {
  uint64_t issued, oldest;
  uint32_t step, peer;
  uint64_t outside_ns, calls;
};

// The rank that others wait for while it is outside Tutti: it has begun the operation without waiting for it, or has
// left bytes behind, and has not come back. Of several the one that is away for longest.
std::optional<uint32_t> absent_rank(uint32_t rank, uint64_t sequence, uint64_t waited_ns,
                                    const std::vector<std::optional<CallReport>>& reports) {
  // A wait looks around every few milliseconds, if it gets a core.
  constexpr uint64_t busy_machine_ns = 200'000'000;
  // A rank that was inside for half of the time has had its chance to move the operation on.
  uint64_t longest = std::max(waited_ns / 2, busy_machine_ns);
  std::optional<uint32_t> absent;
  for (uint32_t r = 0; r < reports.size(); ++r) {
    if (r == rank || !reports[r] || reports[r]->outside_ns <= longest) continue;
    const bool awaited = std::ranges::any_of(
        reports, [&](const auto& other) { return other && other->oldest == sequence && other->peer == r; });
    if (reports[r]->oldest > sequence && !awaited) continue;
    longest = reports[r]->outside_ns;
    absent = r;
  }
  return absent;
}

// Where the other ranks stand that are in the operation.
std::string waiting_text(uint32_t rank, uint64_t sequence, const std::vector<std::optional<CallReport>>& reports) {
  constexpr size_t most_named = 4;
  std::string text;
  size_t named = 0;
  for (uint32_t r = 0; r < reports.size() && named < most_named; ++r) {
    if (r == rank || !reports[r] || reports[r]->oldest != sequence || reports[r]->peer == UINT32_MAX) continue;
    text += fmt::format("{} rank {} is in step {} with rank {}", named++ ? "," : ":", r, reports[r]->step,
                        reports[r]->peer);
  }
  return text;
}

}  // namespace

std::string CallReport::encode() const {
  const Fixed fixed{issued, oldest, step, peer, outside_ns, calls.size()};
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
  CallReport report{fixed.issued, fixed.oldest,     fixed.step,
                    fixed.peer,   fixed.outside_ns, std::vector<Call>(fixed.calls)};
  if (fixed.calls) std::memcpy(report.calls.data(), bytes.data() + sizeof fixed, fixed.calls * sizeof(Call));
  return report;
}

const Call* CallReport::find(uint64_t sequence) const {
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const Call& c) { return c.sequence == sequence; });
  return found == calls.end() ? nullptr : &*found;
}

Stall explain_stall(uint32_t rank, uint64_t sequence, uint64_t waited_ns,
                    const std::vector<std::optional<CallReport>>& reports) {
  // Ranks whose calls differed may have gone on for a while: the first difference is the cause.
  if (rank < reports.size() && reports[rank])
    for (const Call& mine : reports[rank]->calls)
      for (uint32_t r = 0; r < reports.size(); ++r)
        if (const Call* theirs = reports[r] ? reports[r]->find(mine.sequence) : nullptr; theirs && !(*theirs == mine))
          return {r, true, difference_of(r, *theirs, rank, mine).reason};
  std::vector<uint32_t> behind;
  for (uint32_t r = 0; r < reports.size(); ++r)
    if (reports[r] && reports[r]->issued <= sequence) behind.push_back(r);
  if (!behind.empty()) {
    const CallReport& first = *reports[behind.front()];
    std::string text = fmt::format("has not entered operation #{}", sequence);
    if (!first.calls.empty())
      text += fmt::format(": its last was #{}, {}", first.calls.back().sequence, call_text(first.calls.back()));
    if (behind.size() > 1) text += fmt::format(" (in all {} have not)", rank_list(behind));
    return {behind.front(), false, text};
  }
  const std::string waiting = waiting_text(rank, sequence, reports);
  if (const auto absent = absent_rank(rank, sequence, waited_ns, reports))
    return {
        absent, false,
        fmt::format("has been outside Tutti for {:.1f} s while others wait for it in operation #{}: a rank that has "
                    "begun an operation must wait for it or test it, or use TUTTI_COMM_PROGRESS_THREAD; all ranks "
                    "have entered it{}",
                    static_cast<double>(reports[*absent]->outside_ns) * 1e-9, sequence, waiting)};
  return {std::nullopt, false, waiting.empty() ? "" : "all ranks have entered it" + waiting};
}

CallDifference explain_end(uint32_t odd, const std::vector<std::optional<CallReport>>& reports) {
  std::set<uint64_t> sequences;
  for (const auto& report : reports)
    for (const Call& call : report ? report->calls : std::vector<Call>()) sequences.insert(call.sequence);
  for (const uint64_t sequence : sequences) {
    std::optional<Call> usual;
    uint32_t its_rank = 0;
    for (uint32_t r = 0; r < reports.size(); ++r) {
      if (!reports[r]) continue;
      const Call destroys{.sequence = sequence};
      const Call* const call = reports[r]->issued <= sequence ? &destroys : reports[r]->find(sequence);
      if (!call) continue;
      if (usual && !(*usual == *call)) return difference_of(r, *call, its_rank, *usual);
      if (usual) continue;
      usual = *call;
      its_rank = r;
    }
  }
  return {odd, fmt::format("made other calls than rank 0, before the last {} that are known: all ranks must make the same "
                           "calls; TUTTI_CHECK=1 names the first difference",
                           most_calls_reported)};
}

}  // namespace tutti::core
