// SPDX-License-Identifier: Apache-2.0
#include "runner.hpp"

#include <fmt/format.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "folder.hpp"
#include "machine.hpp"
#include "process.hpp"
#include "worker_messages.hpp"

namespace tutti::conformance {
namespace {

using Json = nlohmann::json;
using Clock = std::chrono::steady_clock;

// Once one process has answered badly, the others get so long to say what they saw.
constexpr int64_t grace_ms = 2000;
// After its last case a process has so long to end.
constexpr int64_t end_ms = 20'000;

// Variables of the caller's environment that must not reach a worker, since they would change what is tested.
constexpr const char* withheld[] = {"RANK",        "WORLD_SIZE",      "LOCAL_RANK",       "LOCAL_WORLD_SIZE",
                                    "MASTER_ADDR", "MASTER_PORT",     "TUTTI_RANK",       "TUTTI_WORLD_SIZE",
                                    "TUTTI_ALGO",  "TUTTI_TRANSPORT", "TUTTI_LOCAL_RANK", "TUTTI_LOCAL_WORLD_SIZE",
                                    "TUTTI_ADDR",  "TUTTI_PORT",      "TUTTI_HOST_ID",    "TUTTI_RENDEZVOUS",
                                    "TUTTI_JOB",   "TUTTI_VERIFY",    "TUTTI_NUMA_NODE"};

class Environment {
 public:
  Environment() {
    for (char** variable = environ; *variable; ++variable) set(*variable);
    for (const char* name : withheld) values_.erase(name);
  }
  void change(const std::vector<std::string>& changes) {
    for (const std::string& change : changes) set(change);
  }
  std::vector<std::string> list() const {
    std::vector<std::string> all;
    for (const auto& [name, value] : values_) all.push_back(name + "=" + value);
    return all;
  }

 private:
  void set(const std::string& text) {
    const size_t equal = text.find('=');
    if (equal == std::string::npos)
      values_.erase(text);
    else
      values_[text.substr(0, equal)] = text.substr(equal + 1);
  }
  std::map<std::string, std::string> values_;
};

std::string this_program() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

std::string hex(uint64_t value) { return fmt::format("{:x}", value); }

// The processes that run the cases of one job.
class Job {
 public:
  Job(const Case& first, const RunnerOptions& options) : patience_(options.patience) {
    const std::string program = options.program.empty() ? this_program() : options.program;
    for (uint32_t rank = 0; rank < first.processes; ++rank) {
      Environment environment;
      environment.change(options.environment);
      if (first.environment) environment.change(first.environment(rank));
      const bool apart = !options.netns.empty() && !first.hosts.empty();
      const std::string netns = apart ? fmt::format("{}-{}", options.netns, first.hosts[rank]) : std::string();
      processes_.push_back(std::make_unique<Process>(program, environment.list(), netns));
      processes_.back()->order(Json{
          {"rank", rank},
          {"nranks", first.processes},
          {"folder", folder_.path()},
          {"plugins", options.plugins},
          {"patience", patience_}}.dump());
    }
  }

  // Runs one case in all processes; fills outcome, seconds and attestation.
  void run(const Case& one, Result& result) {
    answers_.assign(processes_.size(), Answer{});
    const auto begin = Clock::now();
    const Json order{{"case", one.id}, {"seed", result.seed}};
    for (const auto& process : processes_) process->order(order.dump());
    collect(begin + limit(one.deadline_ms));
    judge(one, result);
    result.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  }

  // Lets the processes end after their last case, `last`, whose result takes the blame for a bad end.
  void end(Result& last) {
    for (const auto& process : processes_) process->end_orders();
    const auto until = Clock::now() + limit(end_ms);
    for (size_t rank = 0; rank < processes_.size(); ++rank) {
      Process& process = *processes_[rank];
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now()).count();
      const bool ended = process.wait(static_cast<int>(std::max<int64_t>(left, 0)));
      if (is_bad(last.outcome.verdict)) continue;
      if (!ended)
        blame(last, Verdict::timeout, rank,
              fmt::format("did not end within {} s after the case", limit(end_ms).count() / 1000));
      else if (!process.ended_well())
        blame(last, Verdict::crash, rank, process.how() + " after the case, while its communicators were taken down");
      else if (const int left_behind = process.kill_group())
        blame(last, Verdict::fail, rank, fmt::format("left {} processes behind, which were killed", left_behind));
    }
  }

 private:
  struct Answer {
    bool there = false, gone = false;
    Outcome outcome;
    Attestation attestation;
  };

  std::chrono::milliseconds limit(int64_t ms) const {
    return std::chrono::milliseconds(static_cast<int64_t>(static_cast<double>(ms) * patience_));
  }

  void blame(Result& result, Verdict verdict, size_t rank, const std::string& what) {
    const std::string output = processes_[rank]->output_tail();
    result.outcome = {
        verdict,
        fmt::format("process {} {}{}{}", rank, what, output.empty() ? "" : "\nits output ends:\n", output),
        {}};
  }

  void collect(Clock::time_point deadline) {
    for (;;) {
      std::vector<pollfd> waiting;
      for (size_t rank = 0; rank < processes_.size(); ++rank)
        if (!answers_[rank].there && !answers_[rank].gone) waiting.push_back({processes_[rank]->answers(), POLLIN, 0});
      const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
      if (waiting.empty() || left <= 0) return;
      poll(waiting.data(), waiting.size(), static_cast<int>(left) + 1);
      bool bad = false;
      for (size_t rank = 0; rank < processes_.size(); ++rank) {
        listen_to(rank);
        bad |= answers_[rank].gone || (answers_[rank].there && is_bad(answers_[rank].outcome.verdict));
      }
      if (bad) deadline = std::min(deadline, Clock::now() + limit(grace_ms));
    }
  }

  void listen_to(size_t rank) {
    Answer& answer = answers_[rank];
    if (answer.there || answer.gone) return;
    const bool open = processes_[rank]->read_answers();
    if (const auto line = processes_[rank]->next_answer()) {
      try {
        const Json json = Json::parse(*line);
        answer.outcome = outcome_from(json.at("outcome"));
        answer.attestation = attestation_from(json.at("attestation"));
        answer.there = true;
      } catch (const std::exception& e) {
        answer.outcome = Outcome::fail(fmt::format("its answer cannot be read: {}", e.what()));
        answer.there = true;
      }
    } else if (!open) {
      answer.gone = true;
      processes_[rank]->wait(static_cast<int>(limit(grace_ms).count()));
    }
  }

  void judge(const Case& one, Result& result) {
    for (size_t rank = 0; rank < answers_.size(); ++rank)
      if (answers_[rank].gone) return blame(result, Verdict::crash, rank, processes_[rank]->how());
    const Answer* worst = nullptr;
    std::string silent;
    for (const Answer& answer : answers_) {
      if (!answer.there)
        silent += fmt::format("{}{}", silent.empty() ? "" : ", ", &answer - answers_.data());
      else if (!worst || worst->outcome.verdict < answer.outcome.verdict)
        worst = &answer;
    }
    if (!silent.empty() && !(worst && is_bad(worst->outcome.verdict))) {
      const size_t first = std::stoul(silent);
      return blame(result, Verdict::timeout, first,
                   fmt::format("(of {}; silent: {}) gave no answer within {:.3g} s", processes_.size(), silent,
                               static_cast<double>(limit(one.deadline_ms).count()) / 1000.0));
    }
    result.outcome = worst->outcome;
    const size_t rank = static_cast<size_t>(worst - answers_.data());
    if (processes_.size() > 1 && is_bad(result.outcome.verdict))
      result.outcome.message = fmt::format("rank {}: {}", rank, result.outcome.message);
    for (const Answer& answer : answers_) merge(answer, result);
  }

  void merge(const Answer& answer, Result& result) {
    if (!answer.there) return;
    if (answer.outcome.verdict != result.outcome.verdict && result.outcome.verdict == Verdict::not_supported)
      result.outcome =
          Outcome::fail(fmt::format("some processes of the case say that it is not supported ({}), others {}",
                                    result.outcome.message, verdict_name(answer.outcome.verdict)));
    Attestation& all = result.attestation;
    const Attestation& one = answer.attestation;
    if (all.algorithm.empty()) all.algorithm = one.algorithm;
    if (!all.plan_hash) all.plan_hash = one.plan_hash;
    if (all.device.empty()) all.device = one.device;
    all.traffic.insert(all.traffic.end(), one.traffic.begin(), one.traffic.end());
    all.rails.insert(all.rails.end(), one.rails.begin(), one.rails.end());
    for (const std::string& id : one.plugins)
      if (std::find(all.plugins.begin(), all.plugins.end(), id) == all.plugins.end()) all.plugins.push_back(id);
  }

  const double patience_;
  Folder folder_;
  std::vector<std::unique_ptr<Process>> processes_;
  std::vector<Answer> answers_;
};

// "" when the machine has what the case needs.
std::string lacking(const Needs& needs) {
  if (needs.root && geteuid() != 0) return "it needs root";
  if (needs.free_memory) {
    const uint64_t free = available_memory();
    if (free < needs.free_memory)
      return fmt::format("it needs {} MiB of free memory, there are {}", needs.free_memory >> 20, free >> 20);
  }
  return {};
}

std::string reproducer(const Case& one, const RunnerOptions& options) {
  std::string line = "tutti-conform";
  for (const std::string& plugin : options.plugins) line += " --plugin '" + plugin + "'";
  if (!options.nccl_net.empty()) line += " --nccl-net '" + options.nccl_net + "'";
  if (!options.netns.empty()) line += " --netns " + options.netns;
  if (options.patience != 1) line += fmt::format(" --patience {}", options.patience);
  return line + " --reproduce '" + one.id + "@" + hex(options.seed) + "'";
}

class Runner {
 public:
  Runner(const std::vector<Case>& cases, const RunnerOptions& options) : cases_(cases), options_(options) {
    for (const Case& one : cases) {
      Result result;
      result.id = one.id;
      result.kind = one.kind();
      result.clauses = one.clauses;
      result.must_pass = one.must_pass;
      result.axes = one.axes;
      result.visits = one.visits;
      result.seed = case_seed(options.seed, one.id);
      result.reproduce = reproducer(one, options);
      result.outcome = Outcome::not_run("the run ended before");
      results_.push_back(std::move(result));
    }
  }

  std::vector<Result> run() {
    for (const std::vector<size_t>& together : jobs()) {
      run_together(together);
      if (stopped_) break;
    }
    return std::move(results_);
  }

 private:
  // Which cases share processes, in the order in which their first ones stand.
  std::vector<std::vector<size_t>> jobs() const {
    std::vector<std::vector<size_t>> all;
    std::map<std::pair<uint32_t, std::string>, size_t> place;
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (cases_[i].job.empty()) {
        all.push_back({i});
        continue;
      }
      const auto [at, fresh] = place.try_emplace({cases_[i].processes, cases_[i].job}, all.size());
      if (fresh) all.emplace_back();
      all[at->second].push_back(i);
    }
    return all;
  }

  void run_together(const std::vector<size_t>& together) {
    std::unique_ptr<Job> job;
    const size_t none = cases_.size();
    size_t untold = none;  // the latest result: a bad end of the processes may still change it
    for (const size_t i : together) {
      if (stopped_) break;
      if (const std::string reason = lacking(cases_[i].needs); !reason.empty()) {
        results_[i].outcome = Outcome::not_run(reason);
        tell(i);
        continue;
      }
      if (untold != none) tell(std::exchange(untold, none));
      if (stopped_) break;
      if (!job) job = std::make_unique<Job>(cases_[i], options_);
      job->run(cases_[i], results_[i]);
      untold = i;
      if (is_bad(results_[i].outcome.verdict)) job.reset();
    }
    if (job && untold != none) job->end(results_[untold]);
    if (untold != none) tell(untold);
  }

  void tell(size_t i) {
    if (options_.on_result) options_.on_result(results_[i]);
    stopped_ |= options_.stop_at_first_bad && is_bad(results_[i].outcome.verdict);
  }

  const std::vector<Case>& cases_;
  const RunnerOptions& options_;
  std::vector<Result> results_;
  bool stopped_ = false;
};

}  // namespace

std::vector<std::string> worker_environment(const std::vector<std::string>& changes) {
  Environment environment;
  environment.change(changes);
  return environment.list();
}

uint64_t case_seed(uint64_t run_seed, const std::string& id) {
  uint64_t hash = 0xcbf29ce484222325u ^ run_seed;
  for (const char c : id) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
  hash ^= hash >> 32;
  return hash * 0x9e3779b97f4a7c15u;
}

std::vector<Result> run_cases(const std::vector<Case>& cases, const RunnerOptions& options) {
  return Runner(cases, options).run();
}

}  // namespace tutti::conformance
