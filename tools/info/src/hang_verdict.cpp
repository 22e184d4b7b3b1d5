// SPDX-License-Identifier: Apache-2.0
#include "hang_verdict.hpp"

#include <fmt/format.h>
#include <tutti/flight_record.h>
#include <tutti/schedule.h>

#include <algorithm>
#include <map>

namespace info {
namespace {

using Ranks = std::vector<uint32_t>;

const char* have(const Ranks& ranks) { return ranks.size() == 1 ? "has" : "have"; }
const char* waits(const Ranks& ranks) { return ranks.size() == 1 ? "waits" : "wait"; }
const char* are(const Ranks& ranks) { return ranks.size() == 1 ? "is" : "are"; }

template <typename Predicate>
Ranks ranks_where(const CommunicatorView& view, Predicate&& holds) {
  Ranks ranks;
  for (const RankView& r : view.ranks)
    if (holds(r)) ranks.push_back(r.record.rank);
  return ranks;
}

std::string process_text(const RankView& r) {
  return "pid " + std::to_string(r.record.pid) + " on " + r.record.host_name;
}

bool is_created(const RankView& r) { return r.record.phase >= TUTTI_FLIGHT_READY; }

std::string phase_doing(uint32_t phase) {
  switch (phase) {
    case TUTTI_FLIGHT_MEETING:
      return "meeting the other ranks";
    case TUTTI_FLIGHT_COMPARING:
      return "comparing versions and settings with the others";
    case TUTTI_FLIGHT_OPENING:
      return "opening its transports";
    case TUTTI_FLIGHT_DESCRIBING:
      return "exchanging addresses with the others";
    case TUTTI_FLIGHT_READY:
      return "ready";
    case TUTTI_FLIGHT_ENDING:
      return "destroying the communicator";
    default:
      return "failed";
  }
}

// A rank's last position: "its last was all_reduce #4485, 14 s ago", "it is in all_reduce #4486, since 14 s".
std::string standing(const CommunicatorView& view, const RankView& r) {
  const FlightRecord& record = r.record;
  if (!is_created(r)) return "it was " + phase_doing(record.phase);
  const bool dated = r.process != ProcessState::elsewhere;
  if (const Operation* o = record.oldest_incomplete())
    return "it was in " + o->name() + (dated ? ", begun " + age_text(view.now_ns - o->begin_ns) + " ago" : "");
  const Operation* last = record.last();
  if (!last) return "it has called no collective yet";
  return "its last was " + last->name() + (dated ? ", " + age_text(view.now_ns - last->end_ns) + " ago" : "");
}

const LaneWait* lane_wait(const RankView& r, uint64_t sequence) {
  for (const LaneWait& wait : r.record.waits)
    if (wait.sequence == sequence) return &wait;
  return nullptr;
}

// Those with a collective that is not complete, and in which step of the oldest one they are: "ranks 0, 1 and 3 wait in
// step 3 for it".
std::string who_waits(const CommunicatorView& view, const Ranks& culprits, const char* for_whom) {
  Ranks ranks;
  uint32_t least = UINT32_MAX, most = 0;
  std::string operation, site;
  bool same_operation = true, same_site = true;
  for (const RankView& r : view.ranks) {
    const Operation* o = r.record.oldest_incomplete();
    if (!o || !is_created(r) || r.record.phase == TUTTI_FLIGHT_FAILED || r.process == ProcessState::gone ||
        std::count(culprits.begin(), culprits.end(), r.record.rank))
      continue;
    ranks.push_back(r.record.rank);
    if (operation.empty()) operation = o->name();
    same_operation &= operation == o->name();
    const std::string own = r.record.awaited_operation() == o ? r.record.site_text() : "";
    if (ranks.size() == 1) site = own;
    same_site &= site == own;
    if (const LaneWait* wait = lane_wait(r, o->sequence)) {
      least = std::min(least, wait->step);
      most = std::max(most, wait->step);
    }
  }
  if (ranks.empty()) return {};
  std::string text = ranks_text(ranks) + " " + waits(ranks);
  if (same_operation) text += " in " + operation;
  if (same_site) text += site;
  if (least <= most)
    text += least == most ? ", step " + std::to_string(least)
                          : ", steps " + std::to_string(least) + " to " + std::to_string(most);
  return text + (text.ends_with("step") ? "" : "") + " " + for_whom;
}

std::string joined(std::string first, const std::string& second) {
  if (!second.empty()) first += "; " + second;
  return first;
}

const char* it_or_them(const Ranks& ranks) { return ranks.size() == 1 ? "for it" : "for them"; }

// "rank 2 (pid 12 on a) is dead: it was in ...", of the first of them.
Verdict of_processes(const CommunicatorView& view, ProcessState state, Finding finding, const char* words,
                     const char* advice) {
  const Ranks ranks = ranks_where(view, [&](const RankView& r) {
    return r.process == state && !(state == ProcessState::gone && r.record.phase == TUTTI_FLIGHT_FAILED);
  });
  if (ranks.empty()) return {};
  const RankView& first = *view.find(ranks.front());
  std::string text = ranks_text(ranks) + " ";
  text += ranks.size() == 1 ? "(" + process_text(first) + ") " : "";
  text += std::string(are(ranks)) + " " + words + ": ";
  text += (ranks.size() == 1 ? "" : "of rank " + std::to_string(ranks.front()) + ", ") + standing(view, first);
  text = joined(text, who_waits(view, ranks, it_or_them(ranks)));
  if (*advice) text = joined(text, advice + std::to_string(first.record.pid) + " lets it go on");
  return {finding, ranks, text};
}

Verdict of_creation(const CommunicatorView& view) {
  const Ranks making = ranks_where(view, [](const RankView& r) { return !is_created(r); });
  if (making.empty()) return {};
  const RankView& first = *view.find(making.front());
  const std::string since =
      first.process == ProcessState::elsewhere ? "" : ", since " + age_text(view.now_ns - first.record.phase_ns);
  const Ranks absent = view.absent();
  const Ranks meeting = ranks_where(view, [](const RankView& r) { return r.record.phase == TUTTI_FLIGHT_MEETING; });
  if (!absent.empty() && !meeting.empty())
    return {Finding::absent, absent,
            ranks_text(absent) + " " + have(absent) + " not arrived at the making of the communicator \"" + view.name +
                "\": there is no record of " + (absent.size() == 1 ? "it" : "them") +
                " in these folders (not started, or on another host); " + ranks_text(meeting) + " " + waits(meeting) +
                (first.record.place.empty() ? "" : " at " + first.record.place) + since};
  // Those who are least far keep the others waiting.
  uint32_t least = TUTTI_FLIGHT_FAILED;
  for (const RankView& r : view.ranks) least = std::min(least, r.record.phase);
  const Ranks last = ranks_where(view, [&](const RankView& r) { return r.record.phase == least; });
  if (!view.nranks)
    return {Finding::creating, last,
            ranks_text(last) + " " + waits(last) + " for the making of a communicator" + since};
  Verdict verdict{Finding::creating, last,
                  "the communicator \"" + view.name + "\" is being made" + since + ": " + ranks_text(last) + " " +
                      are(last) + " " + phase_doing(least)};
  if (last.size() < view.ranks.size()) verdict.text += ", which the others have done";
  return verdict;
}

Verdict of_failures(const CommunicatorView& view) {
  const RankView* first = nullptr;
  for (const RankView& r : view.ranks)
    if (r.record.phase == TUTTI_FLIGHT_FAILED && (!first || r.record.phase_ns < first->record.phase_ns)) first = &r;
  if (!first) return {};
  const Ranks failed = ranks_where(view, [](const RankView& r) { return r.record.phase == TUTTI_FLIGHT_FAILED; });
  std::string text = ranks_text(failed) + " " + have(failed) + " ended with an error; rank " +
                     std::to_string(first->record.rank) + " first: " + first->record.note;
  return {Finding::failed, {first->record.rank}, joined(text, who_waits(view, failed, ""))};
}

Verdict of_mismatches(const CommunicatorView& view) {
  std::map<uint64_t, const RankView*> first_with;
  for (const RankView& r : view.ranks)
    for (const Operation& o : r.record.operations) {
      const auto [known, is_new] = first_with.emplace(o.sequence, &r);
      if (is_new) continue;
      const Operation& theirs = *known->second->record.find(o.sequence);
      if (theirs.same_call(o)) continue;
      return {Finding::mismatch,
              {known->second->record.rank, r.record.rank},
              "the ranks' calls differ: rank " + std::to_string(known->second->record.rank) + " called " +
                  theirs.text() + " as operation #" + std::to_string(o.sequence) + ", rank " +
                  std::to_string(r.record.rank) + " called " + o.text() +
                  (theirs.text() != o.text()           ? ""
                   : theirs.algorithms != o.algorithms ? " with other algorithms (tutti_options.algorithms)"
                                                       : " and carries it out differently")};
    }
  return {};
}

std::string lane_text(const RankView& r, const LaneWait& wait) {
  std::string text = "rank " + std::to_string(r.record.rank) + " is in step " + std::to_string(wait.step) +
                     " of lane " + std::to_string(wait.lane) + ", " + tutti::step_name(wait.kind);
  if (wait.peer == UINT32_MAX) return text;
  return text + " with rank " + std::to_string(wait.peer) + " over " + wait.transport + " (" +
         std::to_string(wait.done) + " of " + std::to_string(wait.bytes) + " bytes)";
}

Verdict nobody_waits(const CommunicatorView& view) {
  double last = 0;
  const Operation* operation = nullptr;
  for (const RankView& r : view.ranks)
    if (const Operation* o = r.record.last(); o && o->end_ns > last) {
      last = o->end_ns;
      operation = o;
    }
  for (const RankView& r : view.ranks)
    for (const TransferRecord& t : r.record.transfers)
      if (!t.complete && view.now_ns - t.begin_ns > 1e9)
        return {Finding::missing, t.peer == UINT32_MAX ? std::vector<uint32_t>() : std::vector{t.peer},
                "rank " + std::to_string(r.record.rank) + (t.sending ? " waits to send " : " waits to receive ") +
                    std::to_string(t.bytes) + " bytes with " + t.tag_text() +
                    (t.sending ? " to " : " from ") +
                    (t.peer == UINT32_MAX ? "any rank" : "rank " + std::to_string(t.peer) + " over " + t.transports) +
                    (r.record.awaited_transfer() == &t ? r.record.site_text() : "") +
                    ", since " + age_text(view.now_ns - t.begin_ns) + ": the other side's " +
                    (t.sending ? "receive" : "send") + " has not come"};
  return {Finding::none,
          {},
          "no hang: no rank waits inside a collective" +
              (operation ? "; the last was " + operation->name() + ", " + age_text(view.now_ns - last) + " ago" : "")};
}

// Ranks wait in a collective, all alive and of one mind.
Verdict of_operations(const CommunicatorView& view) {
  uint64_t sequence = UINT64_MAX;
  const Operation* waited = nullptr;
  for (const RankView& r : view.ranks)
    if (const Operation* o = r.record.oldest_incomplete(); o && o->sequence < sequence) {
      sequence = o->sequence;
      waited = o;
    }
  if (!waited) return nobody_waits(view);
  if (std::any_of(view.ranks.begin(), view.ranks.end(), [](const RankView& r) { return r.moved; }))
    return {Finding::none, {}, "no hang: operations go on, at " + waited->name() + " when last looked at"};
  const double since = view.now_ns - waited->begin_ns;
  const Ranks behind = ranks_where(view, [&](const RankView& r) { return r.record.issued() <= sequence; });
  if (!behind.empty()) {
    const RankView& first = *view.find(behind.front());
    const bool ending = first.record.phase == TUTTI_FLIGHT_ENDING;
    std::string text = ranks_text(behind) + " " + have(behind) + " not entered " + waited->name();
    text += "; " + (behind.size() == 1 ? "" : "of rank " + std::to_string(behind.front()) + ", ") +
            (ending ? "it destroys the communicator instead" : standing(view, first));
    return {Finding::missing, behind, joined(text, who_waits(view, behind, it_or_them(behind)))};
  }
  const Ranks absent = view.absent();
  if (!absent.empty())
    return {Finding::missing, absent,
            who_waits(view, {}, ("for " + age_text(since)).c_str()) + "; there is no record of " + ranks_text(absent) +
                " in these folders: give those of the other hosts too"};
  std::string text = "all ranks are in " + waited->name() + ", since " + age_text(since) + ", and nothing moves";
  size_t named = 0;
  constexpr size_t most_named = 4;
  for (const RankView& r : view.ranks)
    if (const LaneWait* wait = lane_wait(r, sequence); wait && named++ < most_named)
      text += (named == 1 ? ": " : "; ") + lane_text(r, *wait);
  return {Finding::stuck, ranks_where(view, [](const RankView&) { return true; }), text};
}

}  // namespace

const RankView* CommunicatorView::find(uint32_t rank) const {
  const auto found = std::find_if(ranks.begin(), ranks.end(), [&](const RankView& r) { return r.record.rank == rank; });
  return found == ranks.end() ? nullptr : &*found;
}

std::vector<uint32_t> CommunicatorView::absent() const {
  Ranks missing;
  for (uint32_t r = 0; r < nranks; ++r)
    if (!find(r)) missing.push_back(r);
  return missing;
}

const char* finding_name(Finding finding) {
  constexpr const char* names[] = {"none",   "absent",   "creating", "dead",  "stopped",
                                   "failed", "mismatch", "missing",  "stuck", "cycle"};
  return names[static_cast<size_t>(finding)];
}

Verdict judge(const CommunicatorView& view) {
  for (Verdict verdict : {of_processes(view, ProcessState::gone, Finding::dead, "dead", ""),
                          of_processes(view, ProcessState::stopped, Finding::stopped, "stopped", "kill -CONT "),
                          of_failures(view), of_creation(view), of_mismatches(view)})
    if (verdict.finding != Finding::none) return verdict;
  return of_operations(view);
}

std::string age_text(double ns) {
  const double seconds = std::max(ns, 0.0) * 1e-9;
  if (seconds < 10) return fmt::format("{:.1f} s", seconds);
  if (seconds < 120) return fmt::format("{:.0f} s", seconds);
  if (seconds < 7200) return fmt::format("{:.0f} min", seconds / 60);
  return fmt::format("{:.1f} h", seconds / 3600);
}

std::string ranks_text(const std::vector<uint32_t>& ranks) {
  std::vector<std::string> runs;
  constexpr size_t most_runs = 16;
  size_t shown = 0;
  while (shown < ranks.size() && runs.size() < most_runs) {
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

}  // namespace info
