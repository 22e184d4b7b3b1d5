// SPDX-License-Identifier: Apache-2.0
#include "mutant_run.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <thread>

#include "contract/clauses.hpp"
#include "contract/contract_process.hpp"
#include "options.hpp"

namespace tutti::conformance {
namespace {

namespace fs = std::filesystem;
using contract::ContractCase;
using contract::Subject;
using contract::Target;

// Plugins by id, the samples beside the found ones included.
class Originals {
 public:
  Originals() {
    for (const contract::Found& found : contract::find_plugins()) companions_.push_back({found.id, found.path});
    const fs::path lib = fs::read_symlink("/proc/self/exe").parent_path().parent_path() / "lib";
    add("template", lib / "tutti-samples" / "libtutti-template.so");
    add("simulated", lib / "tutti-samples" / "libtutti-simulated-device.so");
    add("toy-meeting", lib / "tutti-toys" / "libtutti-toy-meeting.so");
    add("toy-rma", lib / "tutti-toys" / "libtutti-toy-rma.so");
    mutants_ = lib / "tutti-mutants" / "libtutti-mutants.so";
    exports_more_ = lib / "tutti-mutants" / "libtutti-mutants-exports-more.so";
    network_ = lib / "tutti-mutants" / "libnccl-net-faulty.so";
    network11_ = lib / "tutti-mutants" / "libnccl-net-faulty11.so";
    for (const fs::path& path : {mutants_, exports_more_, network_, network11_})
      if (!fs::exists(path))
        throw std::runtime_error(fmt::format("{} is not there: build the target of its name", path.string()));
  }
  Target mutant(const Fault& fault, Subject subject) const {
    if (subject == Subject::nccl) return network(fault, fault.name);
    Target target{subject,
                  fault.name == std::string("exports-more") ? exports_more_ : mutants_,
                  subject == Subject::plugin ? "mutants" : "mutant",
                  companions_,
                  {}};
    target.environment = {fmt::format("TUTTI_MUTANT={}", fault.name), fmt::format("TUTTI_MUTANT_OVER={}", fault.over)};
    settle(target);
    return target;
  }
  Target original(const Fault& fault, Subject subject) const {
    if (subject == Subject::nccl) return network(fault, "none");
    const std::string id = fault.over;
    if (id.empty()) return {subject, mutants_, "mutants", companions_, {}};
    // Healthy transports of the mutants' own plugin.
    if (id == "rails" || id == "device-memory")
      return {subject, mutants_, "mutant", companions_, {"TUTTI_MUTANT=" + id}};
    for (const contract::Companion& c : companions_)
      if (c.id == id) {
        Target target{subject, c.path, name_of(subject, id), companions_, {}};
        settle(target);
        return target;
      }
    throw std::runtime_error(fmt::format("the plugin {}, over which {} is made, is not there", id, fault.name));
  }

 private:
  // The network plugin of NCCL that can have the fault, with the one that is `chosen`.
  Target network(const Fault& fault, const std::string& chosen) const {
    const bool is_version11 = fault.over == std::string_view("nccl-net-11");
    return {Subject::nccl, is_version11 ? network11_ : network_, "faulty", {}, {"TUTTI_MUTANT=" + chosen}};
  }
  // The healthy original's name, where that is not the plugin's id.
  static std::string name_of(Subject subject, const std::string& id) {
    if (subject == Subject::algorithm) return "ring";
    return subject == Subject::meeting || subject == Subject::rma ? "toy" : id;
  }
  // Streams in queues of their own, so that what a mutant puts elsewhere is held up by nothing.
  static void settle(Target& target) {
    if (target.subject == Subject::device)
      for (const char* setting : {"TUTTI_SIMULATED_DEVICES=2", "TUTTI_SIMULATED_QUEUES=16"})
        target.environment.emplace_back(setting);
  }
  void add(const std::string& id, const fs::path& path) {
    if (std::none_of(companions_.begin(), companions_.end(), [&](const auto& c) { return c.id == id; }) &&
        fs::exists(path))
      companions_.push_back({id, path});
  }
  std::vector<contract::Companion> companions_;
  fs::path mutants_, exports_more_, network_, network11_;
};

constexpr uint32_t deadline_ms = 90'000;

class MutantRun {
 public:
  explicit MutantRun(const MutantOptions& options)
      : options_(options), folder_(fs::temp_directory_path() / fmt::format("tutti-mutants-{}", getpid())) {
    fs::create_directories(folder_);
  }
  ~MutantRun() {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  MutantResult run(const Fault& fault, Subject subject) {
    const auto begin = std::chrono::steady_clock::now();
    MutantResult result;
    result.fault = &fault;
    Target target = originals_.mutant(fault, subject);
    const fs::path mark = folder_ / fault.name;
    target.environment.push_back("TUTTI_MUTANT_REACHED=" + mark.string());
    for (const ContractCase& one : contract::contract_cases(subject)) {
      const Outcome outcome = contract::run_contract_case(target, one, options_.seed, options_.patience, deadline_ms);
      if (outcome.verdict == Verdict::not_run && names(one, subject, fault.clause)) {
        result.not_run = true;
        result.why = fmt::format("case {}: {}", one.name, outcome.message);
      }
      if (!is_bad(outcome.verdict)) continue;
      result.not_run = false;
      judge(result, fault, subject, one, outcome, fs::exists(mark));
      break;
    }
    if (result.by.empty() && !result.not_run)
      result.why = fs::exists(mark) ? "no case fails, though the fault was reached"
                                    : "no case fails, and none reaches the fault";
    result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return result;
  }

 private:
  static bool names(const ContractCase& one, Subject subject, const std::string& clause) {
    const auto has = [&](const std::vector<const char*>& list) {
      return std::any_of(list.begin(), list.end(), [&](const char* c) { return clause == c; });
    };
    return has(one.clauses) || has(contract::common_clauses(subject));
  }

  void judge(MutantResult& result, const Fault& fault, Subject subject, const ContractCase& one, const Outcome& outcome,
             bool reached) {
    result.by = one.name;
    result.outcome = outcome;
    const Outcome original = run_original(fault, subject, one);
    if (outcome.verdict != Verdict::fail)
      result.why = fmt::format("case {} ended with {}: no clause is named", one.name, verdict_name(outcome.verdict));
    else if (outcome.clause != fault.clause)
      result.why = fmt::format("case {} names {} first, expected {}", one.name, outcome.clause, fault.clause);
    else if (!reached)
      result.why = fmt::format("case {} failed before the fault was reached", one.name);
    else if (original.verdict != Verdict::pass)
      result.why = fmt::format("the original does not pass case {}: {}: {}", one.name, verdict_name(original.verdict),
                               original.message);
    else
      result.killed = true;
  }

  Outcome run_original(const Fault& fault, Subject subject, const ContractCase& one) {
    const std::string key = fmt::format("{}/{}/{}", contract::subject_name(subject), fault.over, one.name);
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = passed_.find(key); found != passed_.end()) return found->second;
    }
    Outcome outcome = contract::run_contract_case(originals_.original(fault, subject), one, options_.seed,
                                                  options_.patience, deadline_ms);
    const std::lock_guard lock(mutex_);
    return passed_[key] = outcome;
  }

  const MutantOptions& options_;
  const Originals originals_;
  const fs::path folder_;
  std::mutex mutex_;
  std::map<std::string, Outcome> passed_;
};

}  // namespace

std::vector<MutantResult> run_mutants(const MutantOptions& options) {
  struct Job {
    const Fault* fault;
    Subject subject;
  };
  std::vector<Job> jobs;
  std::set<std::string> known, wanted(options.names.begin(), options.names.end());
  const auto add = [&](std::span<const Fault> faults, Subject subject) {
    for (const Fault& fault : faults) {
      if (!known.insert(fault.name).second)
        throw std::runtime_error(fmt::format("two mutants are called {}", fault.name));
      if (wanted.empty() || wanted.contains(fault.name)) jobs.push_back({&fault, subject});
    }
  };
  add(plugin_faults(), Subject::plugin);
  add(transport_faults(), Subject::transport);
  add(algorithm_faults(), Subject::algorithm);
  add(device_faults(), Subject::device);
  add(meeting_faults(), Subject::meeting);
  add(rma_faults(), Subject::rma);
  add(nccl_faults(), Subject::nccl);
  for (const std::string& name : wanted)
    if (!known.contains(name))
      throw std::invalid_argument(fmt::format("there is no mutant \"{}\"; mutants --list shows them{}", name,
                                              did_you_mean(name, {known.begin(), known.end()})));

  MutantRun run(options);
  std::vector<MutantResult> results(jobs.size());
  std::atomic<size_t> next{0};
  std::mutex mutex;
  std::exception_ptr trouble;
  std::vector<std::thread> workers;
  for (uint32_t w = 0; w < options.workers; ++w)
    workers.emplace_back([&] {
      // The dearest (the last transport faults run all cases) would end alone: begin anywhere, it is all the same.
      for (size_t i = next++; i < jobs.size(); i = next++) try {
          results[i] = run.run(*jobs[i].fault, jobs[i].subject);
          const std::lock_guard lock(mutex);
          if (options.on_result) options.on_result(results[i]);
        } catch (...) {
          const std::lock_guard lock(mutex);
          if (!trouble) trouble = std::current_exception();
          return;
        }
    });
  for (std::thread& worker : workers) worker.join();
  if (trouble) std::rethrow_exception(trouble);
  return results;
}

std::vector<std::string> uncovered_clauses(const std::vector<MutantResult>& results) {
  std::vector<std::string> uncovered;
  for (const Clause& clause : clauses())
    if (std::none_of(results.begin(), results.end(),
                     [&](const MutantResult& r) { return r.killed && clause.id == std::string_view(r.fault->clause); }))
      uncovered.emplace_back(clause.id);
  return uncovered;
}

}  // namespace tutti::conformance
