// SPDX-License-Identifier: Apache-2.0
#include "record/call_report.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/rank_list.hpp"

namespace tutti::core {
namespace {

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

// Why a rank does not come: "it waits in all_reduce #1 of world.1; rank 0 also waits in ...". "": nothing is known.
std::string waits_text(const std::string& who, uint32_t whom, uint32_t rank,
                       const std::vector<std::optional<CallReport>>& reports, const WaitsForMe& waits_for_me) {
  std::string text;
  if (whom < reports.size() && reports[whom])
    for (const WaitElsewhere& wait : reports[whom]->elsewhere) {
      if (waits_for_me(wait))
        return fmt::format(
            "{} waits in {} for rank {}, which waits here{} for rank {}: a cycle; use the communicators in "
            "the same order on every rank",
            who, wait.text, rank, rank < reports.size() && reports[rank] ? reports[rank]->site : "", whom);
      text += fmt::format("{} {}", text.empty() ? who + " waits in" : ",", wait.text);
    }
  if (rank < reports.size() && reports[rank])
    for (const WaitElsewhere& wait : reports[rank]->elsewhere)
      text += fmt::format("{}rank {} also waits in {}, in another thread", text.empty() ? "" : "; ", rank, wait.text);
  return text;
}

// The rank to name among those that have not entered the operation: one that closes a cycle, or else the first.
uint32_t culprit_of(const std::vector<uint32_t>& behind, const std::vector<std::optional<CallReport>>& reports,
                    const WaitsForMe& waits_for_me) {
  for (const uint32_t r : behind)
    if (std::ranges::any_of(reports[r]->elsewhere, waits_for_me)) return r;
  return behind.front();
}

}  // namespace

std::optional<CallReport> CallReport::read(std::string_view bytes) try {
  return decode<CallReport>(bytes, "a report of calls");
} catch (const Failure&) {
  return std::nullopt;
}

const Call* CallReport::find(uint64_t sequence) const {
  const auto found = std::find_if(calls.begin(), calls.end(), [&](const Call& c) { return c.sequence == sequence; });
  return found == calls.end() ? nullptr : &*found;
}

std::optional<CallDifference> first_difference(uint32_t rank, const std::vector<std::optional<CallReport>>& reports) {
  if (rank >= reports.size() || !reports[rank]) return std::nullopt;
  for (const Call& mine : reports[rank]->calls)
    for (uint32_t r = 0; r < reports.size(); ++r)
      if (const Call* theirs = reports[r] ? reports[r]->find(mine.sequence) : nullptr; theirs && !(*theirs == mine))
        return difference_of(r, *theirs, rank, mine);
  return std::nullopt;
}

Stall explain_transfer(uint32_t rank, uint32_t peer, const std::vector<std::optional<CallReport>>& reports,
                       const WaitsForMe& waits_for_me) {
  return {std::nullopt, false, waits_text(fmt::format("rank {}", peer), peer, rank, reports, waits_for_me)};
}

Stall explain_stall(uint32_t rank, uint64_t sequence, uint64_t waited_ns,
                    const std::vector<std::optional<CallReport>>& reports, const WaitsForMe& waits_for_me) {
  // Ranks whose calls differed may have gone on for a while: the first difference is the cause.
  if (const auto difference = first_difference(rank, reports)) return {difference->culprit, true, difference->reason};
  std::vector<uint32_t> behind;
  for (uint32_t r = 0; r < reports.size(); ++r)
    if (reports[r] && reports[r]->issued <= sequence) behind.push_back(r);
  if (!behind.empty()) {
    const uint32_t culprit = culprit_of(behind, reports, waits_for_me);
    const CallReport& first = *reports[culprit];
    std::string text = fmt::format("has not entered operation #{}", sequence);
    if (!first.calls.empty())
      text += fmt::format(": its last was #{}, {}", first.calls.back().sequence, call_text(first.calls.back()));
    if (behind.size() > 1) text += fmt::format(" (in all {} have not)", rank_list(behind));
    if (const std::string waits = waits_text("it", culprit, rank, reports, waits_for_me); !waits.empty())
      text += "; " + waits;
    return {culprit, false, text};
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
    std::vector<std::pair<uint32_t, Call>> calls;  // by rank
    for (uint32_t r = 0; r < reports.size(); ++r) {
      if (!reports[r]) continue;
      if (reports[r]->issued <= sequence)
        calls.push_back({r, Call{.sequence = sequence}});
      else if (const Call* call = reports[r]->find(sequence))
        calls.push_back({r, *call});
    }
    if (std::ranges::all_of(calls, [&](const auto& one) { return one.second == calls.front().second; })) continue;
    const auto same = [&](const auto& one) {
      return std::ranges::count_if(calls, [&](const auto& other) { return other.second == one.second; });
    };
    // The call that most ranks made is not to blame; among equals it is the lowest rank's.
    const auto usual = std::ranges::max_element(calls, {}, same);
    const auto other = std::ranges::find_if(calls, [&](const auto& one) { return !(one.second == usual->second); });
    return difference_of(other->first, other->second, usual->first, usual->second);
  }
  return {odd,
          fmt::format("made other calls than rank 0, before the last {} that are known: all ranks must make the same "
                      "calls; TUTTI_CHECK=1 names the first difference",
                      most_calls_reported)};
}

}  // namespace tutti::core
