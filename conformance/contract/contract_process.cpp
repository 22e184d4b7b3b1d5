// SPDX-License-Identifier: Apache-2.0
#include "contract_process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <tutti/plugin/meeting.h>
#include <tutti/plugin/rma.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>

extern char** environ;

namespace tutti::conformance::contract {
namespace {

constexpr int outcome_pipe = 4;

uint64_t available_memory() {
  FILE* file = std::fopen("/proc/meminfo", "r");
  char line[200];
  uint64_t kib = 0;
  while (file && std::fgets(line, sizeof line, file))
    if (std::sscanf(line, "MemAvailable: %lu kB", &kib) == 1) break;
  if (file) std::fclose(file);
  return kib << 10;
}

void say(const Outcome& outcome) {
  write_outcome(outcome_pipe, verdict_key(outcome.verdict), outcome.clause.c_str(), outcome.message.c_str());
}

Outcome judge_run(const ContractCase& one, Bench& bench) {
  try {
    one.run(bench);
    require_untouched();
    check_host();
    return {Verdict::pass, bench.remark, {}};
  } catch (const Broken& b) {
    return Outcome::fail(b.what(), b.clause());
  } catch (const NotOffered& n) {
    return Outcome::not_supported(n.reason);
  } catch (const CannotRun& c) {
    return Outcome::not_run(c.reason);
  } catch (const std::exception& e) {
    return Outcome::fail(e.what());
  }
}

Outcome parse(const std::string& text) {
  const size_t first = text.find('\n'), second = first == std::string::npos ? first : text.find('\n', first + 1);
  if (second == std::string::npos) return {Verdict::crash, "its process ended without a word", {}};
  return {verdict_from_key(text.substr(0, first)), text.substr(second + 1), text.substr(first + 1, second - first - 1)};
}

}  // namespace

int run_process(int argc, char** argv) {
  // SUBJECT PATH NAME CASE SEED PATIENCE [ID=PATH ...]
  if (argc < 6) return 2;
  Bench bench;
  bench.path = argv[1];
  bench.name = argv[2];
  bench.seed = std::strtoull(argv[4], nullptr, 10);
  bench.patience = std::strtod(argv[5], nullptr);
  std::vector<Companion> companions;
  for (int i = 6; i < argc; ++i)
    if (const char* sign = std::strchr(argv[i], '='))
      companions.push_back({std::string(argv[i], static_cast<size_t>(sign - argv[i])), sign + 1});
  set_companions(std::move(companions));
  fcntl(outcome_pipe, F_SETFD, FD_CLOEXEC);
  watch_for_signals(outcome_pipe);
  bench.outcome_descriptor = outcome_pipe;
  for (const Subject subject : all_subjects)
    for (const ContractCase& one : contract_cases(subject)) {
      if (std::strcmp(subject_name(subject), argv[0]) != 0 || std::strcmp(one.name, argv[3]) != 0) continue;
      bench.never_blocks = subject == Subject::device ? "X-11"
                           : subject == Subject::nccl ? "nccl.never-blocks"
                                                      : "T-26";
      Outcome outcome = one.memory > 0 && available_memory() < one.memory
                            ? Outcome::not_run(fmt::format("needs {} GiB of free memory, {:.1f} are free",
                                                           one.memory >> 30, double(available_memory()) / (1 << 30)))
                            : judge_run(one, bench);
      if (outcome.verdict == Verdict::fail && !outcome.clause.empty() && outcome.clause.substr(0, 2) != "E-" &&
          std::none_of(one.clauses.begin(), one.clauses.end(), [&](const char* c) { return outcome.clause == c; }) &&
          std::none_of(common_clauses(subject).begin(), common_clauses(subject).end(),
                       [&](const char* c) { return outcome.clause == c; }))
        outcome.message +=
            fmt::format(" [a defect of the suite: the case {} does not name {}]", one.name, outcome.clause);
      say(outcome);
      _exit(0);  // what the plugin does at exit is not asked
    }
  return 2;
}

Outcome run_contract_case(const Target& target, const ContractCase& one, uint64_t seed, double patience,
                          uint32_t deadline_ms) {
  int pipe_ends[2];
  if (pipe2(pipe_ends, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  std::vector<std::string> words{
      "/proc/self/exe", process_argument, subject_name(target.subject), target.path,
      target.name,      one.name,         fmt::format("{}", seed),      fmt::format("{}", patience)};
  for (const Companion& companion : target.companions) words.push_back(companion.id + "=" + companion.path);
  std::vector<char*> arguments, variables;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  std::vector<std::string> more = target.environment;
  for (char** v = environ; *v; ++v) {
    const std::string_view variable = *v;
    const std::string_view name = variable.substr(0, variable.find('=') + 1);
    if (std::none_of(more.begin(), more.end(), [&](const std::string& m) { return m.starts_with(name); }))
      variables.push_back(*v);
  }
  for (std::string& one_more : more) variables.push_back(one_more.data());
  variables.push_back(nullptr);

  const pid_t parent = getpid();
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("fork failed");
  if (child == 0) {
    setpgid(0, 0);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    if (pipe_ends[1] == outcome_pipe)
      fcntl(outcome_pipe, F_SETFD, 0);
    else
      dup2(pipe_ends[1], outcome_pipe);
    execve(arguments[0], arguments.data(), variables.data());
    _exit(127);
  }
  setpgid(child, child);
  close(pipe_ends[1]);
  std::string text;
  bool late = false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::milliseconds(deadline_ms);
  for (;;) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
    pollfd poll_fd{pipe_ends[0], POLLIN, 0};
    const int n = left > 0 ? poll(&poll_fd, 1, static_cast<int>(left)) : 0;
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) {
      late = true;
      break;
    }
    char part[4096];
    const ssize_t got = read(pipe_ends[0], part, sizeof part);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    text.append(part, static_cast<size_t>(got));
  }
  close(pipe_ends[0]);
  kill(-child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  if (late) return {Verdict::timeout, fmt::format("no answer in {:.0f} s", deadline_ms / 1000.0), {}};
  return parse(text);
}

std::vector<Found> find_plugins() {
  std::vector<Found> found;
  // "tutti.meeting/1 NAME" -> NAME
  const auto named = [](const PluginRecord& record, const std::string& id) {
    std::vector<std::string> names;
    for (const std::string& other : record.others)
      if (other.starts_with(id + " ")) names.push_back(other.substr(id.size() + 1));
    return names;
  };
  for (const PluginRecord& record : list_plugins())
    if (record.loaded && record.path != "(static)")
      found.push_back({record.path, record.id, record.transports, record.algorithms, record.devices,
                       named(record, TUTTI_MEETING_ID), named(record, TUTTI_RMA_ID)});
  return found;
}

}  // namespace tutti::conformance::contract
