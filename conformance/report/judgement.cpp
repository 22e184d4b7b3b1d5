// SPDX-License-Identifier: Apache-2.0
#include "report/judgement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "filters.hpp"
#include "report/waivers.hpp"
#include "suites.hpp"

namespace tutti::conformance {
namespace {

bool passed(const Result& result) {
  return result.outcome.verdict == Verdict::pass || result.outcome.verdict == Verdict::warning;
}

// Cases with one thing against them, told in one sentence.
class Against {
 public:
  void add(const std::string& id) {
    if (count_++ < shown) ids_ += (ids_.empty() ? "" : ", ") + id;
  }
  void tell(const std::string& what, std::vector<std::string>& reasons) const {
    if (count_ == 0) return;
    const std::string more = count_ > shown ? fmt::format(" and {} more", count_ - shown) : "";
    reasons.push_back(fmt::format("{} {}: {}{}", count_, what, ids_, more));
  }

 private:
  static constexpr uint64_t shown = 3;
  uint64_t count_ = 0;
  std::string ids_;
};

void judge_verdicts(const Run& run, const std::string& day, std::vector<std::string>& reasons) {
  Against failed, crashed, timed_out, not_supported, not_run;
  for (const Result& r : run.results) {
    const Verdict verdict = r.outcome.verdict;
    if (waiver_of(run.waivers, r, day)) continue;
    if (verdict == Verdict::fail) failed.add(r.id);
    if (verdict == Verdict::crash) crashed.add(r.id);
    if (verdict == Verdict::timeout) timed_out.add(r.id);
    if (r.must_pass && verdict == Verdict::not_supported) not_supported.add(r.id);
    if (r.must_pass && verdict == Verdict::not_run) not_run.add(r.id);
  }
  failed.tell("failed", reasons);
  crashed.tell("crashed", reasons);
  timed_out.tell("did not end in time", reasons);
  not_supported.tell("must-pass not supported", reasons);
  not_run.tell("must-pass not run", reasons);
}

// Waivers that would have helped, had they not expired.
void judge_waivers(const Run& run, const std::string& day, std::vector<std::string>& reasons) {
  for (const Waiver& waiver : run.waivers) {
    if (in_force(waiver, day)) continue;
    const auto covers = [&](const Result& r) { return !passed(r) && matches(waiver.cases, r.id); };
    if (std::any_of(run.results.begin(), run.results.end(), covers))
      reasons.push_back(fmt::format("the waiver of {} expired on {}: {}", waiver.cases, waiver.expires, waiver.reason));
  }
}

bool is_digest(const std::string& text) {
  return text.size() == 64 && text.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void judge_manifest(const Manifest& m, std::vector<std::string>& reasons) {
  const auto lacks = [&](const std::string& what) { reasons.push_back("the manifest lacks " + what); };
  if (m.suite_version.empty()) lacks("the suite's version");
  if (m.library_version.empty()) lacks("the library's version");
  if (!is_digest(m.library_sha256)) lacks("the library's SHA-256");
  if (m.started.size() < 10 || !is_day(m.started.substr(0, 10))) lacks("the day on which the run was started");
  if (m.command_line.empty()) lacks("the command line");
  if (m.level.empty()) lacks("the level");
  for (const char* name : {"kernel", "cpu", "cores", "memory", "compiler"}) {
    const auto named = [&](const auto& pair) { return pair.first == name && !pair.second.empty(); };
    if (std::none_of(m.machine.begin(), m.machine.end(), named)) lacks(std::string("the machine's ") + name);
  }
  for (const PluginFact& plugin : m.plugins)
    if (plugin.refused.empty() && plugin.path != "(static)" && !is_digest(plugin.sha256))
      lacks("the SHA-256 of the plugin " + plugin.id);
}

// A case that was asked to run on one transport and moved bytes over another proves nothing of the one.
void judge_traffic(const Run& run, std::vector<std::string>& reasons) {
  for (const Result& r : run.results) {
    const std::string mix = axis_of(r, "transport");
    if (mix.empty() || !passed(r)) continue;
    auto asked = transports_of(mix);
    if (r.kind == "chaos") asked.emplace_back("chaos");  // which disturbs the transport that the case is about
    for (const Traffic& t : r.attestation.traffic)
      if (t.sent_bytes + t.received_bytes > 0 && !wants(asked, t.transport)) {
        reasons.push_back(fmt::format("{} passed, but rank {} moved {} bytes with rank {} over {}", r.id, t.rank,
                                      t.sent_bytes + t.received_bytes, t.peer, t.transport));
        return;
      }
  }
}

// The same for the device whose memory a case was about.
void judge_devices(const Run& run, std::vector<std::string>& reasons) {
  for (const Result& r : run.results) {
    const std::string device = axis_of(r, "device");
    const bool nothing = axis_of(r, "count") == "0" && axis_of(r, "collective") != "barrier";
    if (r.kind != "matrix" || device.empty() || !passed(r) || nothing) continue;
    if (r.attestation.device == (device == "host" ? "" : device)) continue;
    reasons.push_back(fmt::format("{} passed, but its attestation says device \"{}\"", r.id, r.attestation.device));
    return;
  }
}

// An algorithm that was only run is not called conforming.
void judge_proofs(const Run& run, std::vector<std::string>& reasons) {
  std::set<std::string> proved, run_only;
  for (const Result& r : run.results)
    if (r.kind == "proof" && passed(r)) proved.insert(axis_of(r, "algorithm") + " " + axis_of(r, "collective"));
  for (const Result& r : run.results) {
    const std::string algorithm = axis_of(r, "algorithm"), collective = axis_of(r, "collective");
    if (r.kind != "matrix" || !passed(r) || algorithm.empty() || collective.empty()) continue;
    if (!proved.contains(algorithm + " " + collective)) run_only.insert(algorithm + " " + collective);
  }
  for (const std::string& what : run_only)
    reasons.push_back(what + " was run, but its schedules are not proved: it is not called conforming");
}

}  // namespace

std::string Judgement::title() const {
  if (!reasons.empty()) return "NOT conforming";
  return part.empty() ? "conforming, at this level" : "these cases passed; " + part + ", they prove no conformance";
}

std::string day_of(const Run& run) { return run.manifest.started.substr(0, 10); }

Judgement judge(const Run& run, const std::string& day) {
  Judgement judgement;
  judge_verdicts(run, day, judgement.reasons);
  judge_waivers(run, day, judgement.reasons);
  if (run.results.empty())
    judgement.reasons.push_back("no case was run");
  else if (std::none_of(run.results.begin(), run.results.end(), passed))
    judgement.reasons.push_back("no case passed");
  if (!run.manifest.share.empty()) judgement.part = "the share " + run.manifest.share + " of all";
  if (!run.manifest.cases.empty()) judgement.part = "picked by hand";
  if (judgement.part.empty()) judge_proofs(run, judgement.reasons);
  return judgement;
}

std::vector<std::string> reasons_against(const Subject& subject, const Run& run, const std::string& day) {
  std::vector<std::string> reasons;
  const auto has = [&](const PluginFact& p) {
    const auto& names = subject.kind == "transport"   ? p.transports
                        : subject.kind == "algorithm" ? p.algorithms
                                                      : p.devices;
    return p.refused.empty() && std::find(names.begin(), names.end(), subject.name) != names.end();
  };
  if (std::none_of(run.manifest.plugins.begin(), run.manifest.plugins.end(), has))
    reasons.push_back(fmt::format("no plugin of the manifest has the {} {}", subject.kind, subject.name));
  Against missing, lost;
  for (const std::string& pattern : must_pass_patterns(subject)) {
    bool found = false, kept = false;
    for (const Result& r : run.results) {
      if (!matches(pattern, r.id)) continue;
      found = true;
      kept |= passed(r) || waiver_of(run.waivers, r, day);
    }
    if (!kept) (found ? lost : missing).add(pattern);
  }
  const std::string list = fmt::format("on the must-pass list of {} {}", subject.kind, subject.name);
  lost.tell(list + " did not pass", reasons);
  missing.tell(fmt::format("{} have no case in this run of level {}", list, run.manifest.level), reasons);
  return reasons;
}

std::vector<Subject> subjects_of(const Selection& asked, const Run& run) {
  std::set<std::pair<std::string, std::string>> found;
  const auto add = [&](const char* kind, const std::vector<std::string>& names) {
    for (const std::string& name : names)
      for (const std::string& one : transports_of(name)) found.emplace(kind, one);
  };
  add("transport", asked.transports);
  add("algorithm", asked.algorithms);
  add("device", asked.devices);
  if (found.empty()) {
    add("transport", run.manifest.transports);
    add("algorithm", run.manifest.algorithms);
    add("device", run.manifest.devices);
  }
  const auto answered = [](Verdict v) { return v != Verdict::not_supported && v != Verdict::not_run; };
  if (found.empty())
    for (const Result& result : run.results)
      for (const auto& [axis, value] : answered(result.outcome.verdict) ? result.axes : decltype(result.axes)())
        if (axis == "transport" || axis == "algorithm" || axis == "device") add(axis.c_str(), {value});
  found.erase({"device", "host"});  // no plugin's
  found.erase({"transport", mapped_way});
  std::vector<Subject> subjects;
  for (const auto& [kind, name] : found) subjects.push_back({kind, name});
  return subjects;
}

Judgement judge_submission(const Run& run, const std::string& day) {
  Judgement judgement = judge(run, day);
  if (!judgement.part.empty())
    judgement.reasons.push_back("its cases are " + judgement.part + " (--case, --share): it is about no whole plugin");
  judge_traffic(run, judgement.reasons);
  judge_devices(run, judgement.reasons);
  judge_manifest(run.manifest, judgement.reasons);
  return judgement;
}

}  // namespace tutti::conformance
