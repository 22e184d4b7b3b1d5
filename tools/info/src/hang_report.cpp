// SPDX-License-Identifier: Apache-2.0
#include "hang_report.hpp"

#include <fmt/format.h>
#include <tutti/flight_record.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <stdexcept>
#include <thread>
#include <tuple>
#include <tutti/sdk/text.hpp>

#include "wait_graph.hpp"

namespace info {
namespace {

using Json = nlohmann::ordered_json;
using Path = std::filesystem::path;

// Long enough that what moves is seen to, short enough that nobody minds.
constexpr std::chrono::milliseconds between_looks(300);
constexpr size_t most_files = 65536;

double monotonic_ns() {
  return static_cast<double>(
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
          .count());
}

std::set<std::string> usual_folders() {
  std::set<std::string> folders{"/tmp/tutti-" + std::to_string(geteuid())};
  if (const char* given = std::getenv("TUTTI_RECORDER_DIR"); given && *given) folders.insert(given);
  if (const char* runtime = std::getenv("XDG_RUNTIME_DIR"); runtime && *runtime)
    folders.insert(std::string(runtime) + "/tutti");
  return folders;
}

// The folders of a live process's records, which it has mapped.
std::set<std::string> folders_of_process(const std::string& pid) {
  std::set<std::string> folders;
  std::ifstream maps("/proc/" + pid + "/maps");
  for (std::string line; std::getline(maps, line);) {
    const size_t path = line.find('/');
    if (path != std::string::npos && line.ends_with(TUTTI_FLIGHT_SUFFIX))
      folders.insert(Path(line.substr(path)).parent_path());
  }
  return folders;
}

struct Wanted {
  std::set<std::string> folders;
  bool given = false;  // the user named them
  std::set<uint64_t> pids;
};

Wanted interpret(const std::vector<std::string>& targets) {
  Wanted wanted;
  for (const std::string& target : targets) {
    const auto pid = tutti::whole_number(target, 0, UINT64_MAX);
    if (!pid) {
      if (!std::filesystem::is_directory(target))
        throw std::runtime_error("--hang " + target + ": expected the number of a process or a folder with records");
      wanted.folders.insert(target);
      wanted.given = true;
      continue;
    }
    wanted.pids.insert(*pid);
    const auto folders = folders_of_process(target);
    wanted.folders.insert(folders.begin(), folders.end());
  }
  if (wanted.folders.empty()) wanted.folders = usual_folders();
  return wanted;
}

struct Found {
  std::vector<FlightRecord> records;
  std::vector<std::string> refused;
};

Found read_folders(const std::set<std::string>& folders) {
  Found found;
  size_t files = 0;
  for (const std::string& folder : folders) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      const std::string path = entry.path();
      if (!path.ends_with(TUTTI_FLIGHT_SUFFIX) || ++files > most_files) continue;
      std::string error;
      if (auto record = read_flight_record(path, &error))
        found.records.push_back(std::move(*record));
      else if (std::filesystem::exists(std::filesystem::symlink_status(entry.path(), ignored)))
        found.refused.push_back(path + ": " + error);
    }
  }
  return found;
}

// The values that change when a rank makes progress.
bool same_progress(const FlightRecord& a, const FlightRecord& b) {
  const Operation *x = a.oldest_incomplete(), *y = b.oldest_incomplete();
  const bool same_oldest = (!x && !y) || (x && y && x->sequence == y->sequence);
  return a.issued() == b.issued() && same_oldest && a.moved_ns == b.moved_ns && a.phase == b.phase;
}

double latest(const FlightRecord& r) {
  double ns = std::max(r.phase_ns, r.look_ns);
  if (const Operation* o = r.last()) ns = std::max({ns, o->begin_ns, o->end_ns});
  return ns;
}

// Puts each record into the view of its communicator. One that has not agreed on a communicator yet belongs to the one
// that is being made at its meeting place, if that still lacks its rank.
std::vector<CommunicatorView> group(std::vector<FlightRecord> records) {
  std::vector<CommunicatorView> views;
  std::map<std::pair<uint64_t, uint64_t>, size_t> of_communicator, of_meeting;
  const auto add = [&](FlightRecord record) {
    CommunicatorView* view = nullptr;
    const std::pair<uint64_t, uint64_t> meeting{record.meeting, 0};
    if (record.communicator) {
      const auto [at, is_new] = of_communicator.try_emplace({record.communicator, record.meeting}, views.size());
      if (is_new) views.emplace_back();
      view = &views[at->second];
      if (view->ranks.empty() || record.begin_ns > view->ranks.front().record.begin_ns)
        of_meeting[meeting] = at->second;
    } else {
      const auto [at, is_new] = of_meeting.try_emplace(meeting, views.size());
      if (is_new) views.emplace_back();
      view = &views[at->second];
      const bool made = std::all_of(view->ranks.begin(), view->ranks.end(),
                                    [](const RankView& r) { return r.record.phase >= TUTTI_FLIGHT_READY; });
      if (!is_new && (made || view->find(record.rank)) && view->id) {
        at->second = views.size();
        view = &views.emplace_back();
      }
    }
    RankView rank;
    rank.process = process_state(record.host, record.pid, record.process_start);
    view->id = std::max(view->id, record.communicator);
    view->nranks = std::max(view->nranks, record.nranks);
    view->name = record.name;
    const auto known = std::find_if(view->ranks.begin(), view->ranks.end(),
                                    [&](const RankView& r) { return r.record.rank == record.rank; });
    rank.record = std::move(record);
    if (known == view->ranks.end())
      view->ranks.push_back(std::move(rank));
    else if (rank.record.created > known->record.created ||
             (known->process == ProcessState::gone && rank.process != ProcessState::gone))
      *known = std::move(rank);  // an earlier attempt at the same place
  };
  std::stable_sort(records.begin(), records.end(), [](const FlightRecord& a, const FlightRecord& b) {
    return (a.communicator != 0) > (b.communicator != 0);
  });
  for (FlightRecord& record : records) add(std::move(record));
  for (CommunicatorView& view : views)
    std::sort(view.ranks.begin(), view.ranks.end(),
              [](const RankView& a, const RankView& b) { return a.record.rank < b.record.rank; });
  return views;
}

// A meeting that was given up leaves records of dead processes behind, which are no ranks of the one that goes on.
void drop_earlier_attempts(CommunicatorView& view) {
  if (view.id) return;
  double living = 0;
  for (const RankView& r : view.ranks)
    if (r.process != ProcessState::gone && (living == 0 || r.record.begin_ns < living)) living = r.record.begin_ns;
  constexpr double same_start_ns = 60e9;
  if (living > 0)
    std::erase_if(view.ranks, [&](const RankView& r) {
      return r.process == ProcessState::gone && latest(r.record) + same_start_ns < living;
    });
}

bool all_dead(const CommunicatorView& view) {
  return std::all_of(view.ranks.begin(), view.ranks.end(),
                     [](const RankView& r) { return r.process == ProcessState::gone; });
}

// In this host's own folders those are of an earlier boot, or of a container.
bool all_elsewhere(const CommunicatorView& view) {
  return std::all_of(view.ranks.begin(), view.ranks.end(),
                     [](const RankView& r) { return r.process == ProcessState::elsewhere; });
}

double latest(const CommunicatorView& view) {
  double ns = 0;
  for (const RankView& r : view.ranks) ns = std::max(ns, latest(r.record));
  return ns;
}

// The moment to which ages refer: now, or for records of other hosts the last that they tell of.
void set_now(CommunicatorView& view) {
  const bool here = std::any_of(view.ranks.begin(), view.ranks.end(),
                                [](const RankView& r) { return r.process != ProcessState::elsewhere; });
  view.now_ns = here ? monotonic_ns() : latest(view);
}

using Entry = HangReport::Entry;

bool all_failed(const CommunicatorView& view) {
  return std::all_of(view.ranks.begin(), view.ranks.end(), [](const RankView& r) {
    return r.record.phase == TUTTI_FLIGHT_FAILED || r.process == ProcessState::gone;
  });
}

// Trouble first, and of that the communicators that are in use: others tell what was before. One that names the ranks
// that are waited for comes before a receive from any rank, which may be none of their concern.
int urgency(const JudgedCommunicator& c) {
  if (c.verdict.finding == Finding::cycle) return 0;
  if (c.verdict.finding == Finding::none) return 4;
  return all_failed(c.view) ? 3 : c.verdict.culprits.empty() ? 2 : 1;
}

// Those in which these take part, and those of the same cycles.
void keep_of_processes(std::vector<Entry>& entries, const std::set<uint64_t>& pids) {
  std::set<std::string> cycles;
  const auto has = [&](const Entry& entry) {
    return std::any_of(entry.view.ranks.begin(), entry.view.ranks.end(),
                       [&](const RankView& r) { return pids.count(r.record.pid) > 0; });
  };
  for (const Entry& entry : entries)
    if (entry.verdict.finding == Finding::cycle && has(entry)) cycles.insert(entry.verdict.text);
  std::erase_if(entries, [&](const Entry& entry) { return !has(entry) && !cycles.count(entry.verdict.text); });
}

// Leaves the communicators that have a living process; with nobody alive, the one that was last in use. How many go.
size_t drop_ended(std::vector<Entry>& entries) {
  if (entries.empty()) return 0;
  const auto last = std::max_element(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::make_pair(!a.ended, latest(a.view)) < std::make_pair(!b.ended, latest(b.view));
  });
  const double shown = last->ended ? latest(last->view) : HUGE_VAL;
  return std::erase_if(entries, [&](const Entry& entry) { return entry.ended && latest(entry.view) < shown; });
}

bool same_job(const Entry& a, const Entry& b) { return a.job == b.job && a.ended == b.ended; }

// "job of train on a, processes 12, 13"
std::string job_text(const std::vector<Entry>& entries, const Entry& one) {
  std::set<uint64_t> pids;
  const FlightRecord* first = nullptr;
  for (const Entry& entry : entries)
    for (const RankView& r : entry.view.ranks)
      if (same_job(entry, one)) {
        pids.insert(r.record.pid);
        if (!first) first = &r.record;
      }
  constexpr size_t most_named = 8;
  std::string text =
      "job of " + first->program + " on " + first->host_name + ", " + (pids.size() == 1 ? "process" : "processes");
  size_t named = 0;
  for (const uint64_t pid : pids)
    if (named++ < most_named) text += (named == 1 ? " " : ", ") + std::to_string(pid);
  if (pids.size() > most_named) text += " and " + std::to_string(pids.size() - most_named) + " more";
  return text + (one.ended ? ", ended" : "");
}

const char* phase_name(uint32_t phase) {
  constexpr const char* names[] = {"", "meeting", "comparing", "opening", "describing", "ready", "ending", "failed"};
  return phase < std::size(names) ? names[phase] : "?";
}

std::string at_text(const RankView& r) {
  const Operation* oldest = r.record.oldest_incomplete();
  const Operation* shown = oldest ? oldest : r.record.last();
  if (!shown) return "no collective";
  std::string text = std::string(oldest ? "in " : "after ") + shown->name() + " " + shown->text();
  if (!shown->algorithm.empty())
    text += " " + shown->algorithm + (shown->transports.empty() ? "" : " over " + shown->transports);
  return text;
}

std::string waits_text(const RankView& r) {
  std::string text;
  for (const LaneWait& w : r.record.waits) {
    if (w.peer == UINT32_MAX) continue;
    text += (text.empty() ? "" : ", ") + std::string("lane ") + std::to_string(w.lane) + " step " +
            std::to_string(w.step) + ": rank " + std::to_string(w.peer) + " over " + w.transport;
  }
  return text;
}

Json rank_json(const RankView& r, double now_ns) {
  const FlightRecord& record = r.record;
  Json json{{"rank", record.rank},
            {"host", record.host_name},
            {"pid", record.pid},
            {"program", record.program},
            {"process", process_state_name(r.process)},
            {"phase", phase_name(record.phase)},
            {"collectives", record.issued()},
            {"moved", r.moved},
            {"record", record.path}};
  const Operation* oldest = record.oldest_incomplete();
  if (const Operation* o = oldest ? oldest : record.last())
    json["last"] = {{"sequence", o->sequence},
                    {"call", o->text()},
                    {"order", o->order_name()},
                    {"wire", o->wire_name()},
                    {"tag", o->tag},
                    {"complete", o->complete},
                    {"algorithm", o->algorithm},
                    {"transports", o->transports},
                    {"seconds_ago", (now_ns - (o->complete ? o->end_ns : o->begin_ns)) * 1e-9}};
  json["waits"] = Json::array();
  for (const LaneWait& w : record.waits) {
    Json wait{{"sequence", w.sequence}, {"lane", w.lane}, {"step", w.step}, {"bytes", w.bytes}, {"done", w.done}};
    if (w.peer != UINT32_MAX) {
      wait["peer"] = w.peer;
      wait["transport"] = w.transport;
    }
    json["waits"].push_back(std::move(wait));
  }
  if (!record.site.empty() && (record.awaited_operation() || record.awaited_transfer())) json["site"] = record.site;
  if (!record.note.empty()) json["note"] = record.note;
  return json;
}

}  // namespace

std::vector<HangReport::Entry> in_order(std::vector<JudgedCommunicator> judged) {
  for (const WaitCycle& cycle : find_cycles(judged))
    for (const auto& [at, ranks] : cycle.ranks)
      if (judged[at].verdict.finding != Finding::cycle) judged[at].verdict = {Finding::cycle, ranks, cycle.text};
  const std::vector<size_t> jobs = jobs_of(judged);
  std::set<size_t> troubled;
  std::vector<Entry> entries;
  for (size_t i = 0; i < judged.size(); ++i) {
    if (judged[i].verdict.finding != Finding::none) troubled.insert(jobs[i]);
    const bool ended = all_dead(judged[i].view);
    entries.push_back({std::move(judged[i]), jobs[i], ended});
  }
  const auto place = [&](const Entry& e) {
    const std::string cycle = e.verdict.finding == Finding::cycle ? e.verdict.text : "";
    return std::make_tuple(e.ended, !troubled.count(e.job), e.job, urgency(e), cycle, e.view.name);
  };
  std::stable_sort(entries.begin(), entries.end(), [&](const Entry& a, const Entry& b) { return place(a) < place(b); });
  return entries;
}

HangReport find_hangs(const std::vector<std::string>& targets, bool all) {
  const Wanted wanted = interpret(targets);
  const Found before = read_folders(wanted.folders);
  std::this_thread::sleep_for(between_looks);
  Found now = read_folders(wanted.folders);
  std::map<std::string, const FlightRecord*> earlier;
  for (const FlightRecord& record : before.records) earlier[record.path] = &record;

  HangReport report;
  report.folders.assign(wanted.folders.begin(), wanted.folders.end());
  report.pids.assign(wanted.pids.begin(), wanted.pids.end());
  report.refused = std::move(now.refused);
  std::vector<CommunicatorView> views = group(std::move(now.records));
  if (!all && !wanted.given)
    report.old = std::erase_if(views, [](const CommunicatorView& view) { return all_elsewhere(view); });
  std::vector<JudgedCommunicator> judged;
  for (CommunicatorView& view : views) {
    drop_earlier_attempts(view);
    set_now(view);
    for (RankView& r : view.ranks) {
      const auto known = earlier.find(r.record.path);
      r.moved = known != earlier.end() && !same_progress(*known->second, r.record);
    }
    Verdict verdict = judge(view);
    judged.push_back({std::move(view), std::move(verdict)});
  }
  report.communicators = in_order(std::move(judged));
  if (!wanted.pids.empty()) keep_of_processes(report.communicators, wanted.pids);
  if (!all) report.old += drop_ended(report.communicators);
  return report;
}

bool HangReport::trouble() const {
  return std::any_of(communicators.begin(), communicators.end(),
                     [](const Entry& entry) { return entry.verdict.finding != Finding::none; });
}

std::string hang_text(const HangReport& report) {
  std::string text;
  for (const std::string& refused : report.refused) text += fmt::format("REFUSED {}\n", refused);
  if (report.communicators.empty())
    text += fmt::format("No flight records{}{} in {}{}: is this the user and the host of the job, and TUTTI_RECORDER "
                        "on?\n",
                        report.pids.empty() ? "" : " of process ", fmt::join(report.pids, ", "),
                        fmt::join(report.folders, " "), report.old ? " of living processes" : "");
  const bool several = std::any_of(report.communicators.begin(), report.communicators.end(),
                                   [&](const Entry& e) { return !same_job(e, report.communicators.front()); });
  const Entry* before = nullptr;
  for (const Entry& entry : report.communicators) {
    const auto& [view, verdict] = static_cast<const JudgedCommunicator&>(entry);
    if (several && (!before || !same_job(*before, entry)))
      text += fmt::format("== {}\n\n", job_text(report.communicators, entry));
    const bool told = before && verdict.finding == Finding::cycle && before->verdict.text == verdict.text;
    if (!told) text += verdict.text + "\n\n";
    before = &entry;
    text += fmt::format("  communicator \"{}\" of {} ranks, {} recorded here\n", view.name, view.nranks,
                        view.ranks.size());
    for (const RankView& r : view.ranks) {
      text += fmt::format("  rank {}  {} pid {} on {} {}  {}", r.record.rank, r.record.program, r.record.pid,
                          r.record.host_name, process_state_name(r.process), phase_name(r.record.phase));
      if (r.record.phase >= TUTTI_FLIGHT_READY) text += "  " + at_text(r);
      if (const std::string waits = waits_text(r); !waits.empty()) text += "\n          " + waits;
      if (!r.record.site.empty() && (r.record.awaited_operation() || r.record.awaited_transfer()))
        text += "\n          waits at " + r.record.site;
      if (!r.record.note.empty()) text += "\n          " + r.record.note;
      text += "\n";
    }
    const auto absent = view.absent();
    if (!absent.empty()) text += fmt::format("  {}  no record in these folders\n", ranks_text(absent));
    text += "\n";
  }
  if (report.old)
    text += fmt::format("{} older communicators, of which no process lives here, are not shown (--all)\n", report.old);
  return text;
}

std::string hang_json(const HangReport& report) {
  Json json{{"trouble", report.trouble()},
            {"folders", report.folders},
            {"refused", report.refused},
            {"not_shown", report.old},
            {"communicators", Json::array()}};
  for (const Entry& entry : report.communicators) {
    const auto& [view, verdict] = static_cast<const JudgedCommunicator&>(entry);
    Json one{{"name", view.name},
             {"job", entry.job},
             {"ended", entry.ended},
             {"nranks", view.nranks},
             {"finding", finding_name(verdict.finding)},
             {"culprits", verdict.culprits},
             {"verdict", verdict.text},
             {"absent", view.absent()},
             {"ranks", Json::array()}};
    for (const RankView& r : view.ranks) one["ranks"].push_back(rank_json(r, view.now_ns));
    json["communicators"].push_back(std::move(one));
  }
  return json.dump(2) + "\n";
}

}  // namespace info
