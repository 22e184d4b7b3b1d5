// SPDX-License-Identifier: Apache-2.0
#include "hang_report.hpp"

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
#include <sstream>
#include <stdexcept>
#include <thread>

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

bool is_number(const std::string& text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
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
    if (!is_number(target)) {
      if (!std::filesystem::is_directory(target))
        throw std::runtime_error("--hang " + target + ": expected the number of a process or a folder with records");
      wanted.folders.insert(target);
      wanted.given = true;
      continue;
    }
    wanted.pids.insert(std::stoull(target.substr(0, 19)));
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
    json["last"] = {
        {"sequence", o->sequence},     {"call", o->text()},
        {"complete", o->complete},     {"algorithm", o->algorithm},
        {"transports", o->transports}, {"seconds_ago", (now_ns - (o->complete ? o->end_ns : o->begin_ns)) * 1e-9}};
  json["waits"] = Json::array();
  for (const LaneWait& w : record.waits) {
    Json wait{{"sequence", w.sequence}, {"lane", w.lane}, {"step", w.step}, {"bytes", w.bytes}, {"done", w.done}};
    if (w.peer != UINT32_MAX) {
      wait["peer"] = w.peer;
      wait["transport"] = w.transport;
    }
    json["waits"].push_back(std::move(wait));
  }
  if (!record.note.empty()) json["note"] = record.note;
  return json;
}

}  // namespace

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
  if (!wanted.pids.empty())
    std::erase_if(views, [&](const CommunicatorView& view) {
      return std::none_of(view.ranks.begin(), view.ranks.end(),
                          [&](const RankView& r) { return wanted.pids.count(r.record.pid) > 0; });
    });
  if (!all && !wanted.given)
    report.old = std::erase_if(views, [](const CommunicatorView& view) { return all_elsewhere(view); });
  // With nobody alive the last who died are of interest.
  const auto last_dead = std::max_element(views.begin(), views.end(), [](const auto& a, const auto& b) {
    return std::make_pair(!all_dead(a), latest(a)) < std::make_pair(!all_dead(b), latest(b));
  });
  const double shown_dead = last_dead != views.end() && all_dead(*last_dead) ? latest(*last_dead) : HUGE_VAL;
  for (CommunicatorView& view : views) {
    if (!all && all_dead(view) && latest(view) < shown_dead) {
      ++report.old;
      continue;
    }
    drop_earlier_attempts(view);
    set_now(view);
    for (RankView& r : view.ranks) {
      const auto known = earlier.find(r.record.path);
      r.moved = known != earlier.end() && !same_progress(*known->second, r.record);
    }
    Verdict verdict = judge(view);
    report.communicators.push_back({std::move(view), std::move(verdict)});
  }
  std::stable_sort(report.communicators.begin(), report.communicators.end(), [](const auto& a, const auto& b) {
    return (a.verdict.finding != Finding::none) > (b.verdict.finding != Finding::none);
  });
  return report;
}

std::string hang_text(const HangReport& report) {
  std::ostringstream out;
  for (const std::string& refused : report.refused) out << "REFUSED " << refused << "\n";
  if (report.communicators.empty()) {
    out << "No flight records";
    for (const uint64_t pid : report.pids) out << (pid == report.pids.front() ? " of process " : ", ") << pid;
    out << " in";
    for (const std::string& folder : report.folders) out << " " << folder;
    out << (report.old ? " of living processes" : "")
        << ": is this the user and the host of the job, and TUTTI_RECORDER on?\n";
  }
  for (const auto& [view, verdict] : report.communicators) {
    out << verdict.text << "\n\n  communicator \"" << view.name << "\" of " << view.nranks << " ranks, "
        << view.ranks.size() << " recorded here\n";
    for (const RankView& r : view.ranks) {
      out << "  rank " << r.record.rank << "  " << r.record.program << " pid " << r.record.pid << " on "
          << r.record.host_name << " " << process_state_name(r.process) << "  " << phase_name(r.record.phase);
      if (r.record.phase >= TUTTI_FLIGHT_READY) out << "  " << at_text(r);
      if (const std::string waits = waits_text(r); !waits.empty()) out << "\n          " << waits;
      if (!r.record.note.empty()) out << "\n          " << r.record.note;
      out << "\n";
    }
    const auto absent = view.absent();
    if (!absent.empty()) out << "  " << ranks_text(absent) << "  no record in these folders\n";
    out << "\n";
  }
  if (report.old) out << report.old << " older communicators, of which no process lives here, are not shown (--all)\n";
  return out.str();
}

std::string hang_json(const HangReport& report) {
  Json json{{"trouble", report.trouble()},
            {"folders", report.folders},
            {"refused", report.refused},
            {"not_shown", report.old},
            {"communicators", Json::array()}};
  for (const auto& [view, verdict] : report.communicators) {
    Json one{{"name", view.name},
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
