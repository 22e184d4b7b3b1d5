// SPDX-License-Identifier: Apache-2.0
#include "trial.hpp"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <random>
#include <set>

namespace survival {
namespace {

using Clock = std::chrono::steady_clock;

// Longer than any deadline of a trial; what takes longer hangs.
constexpr auto kHang = std::chrono::seconds(90);

struct Process {
  pid_t id = -1;
  int output = -1;
  std::string text;
  bool over = false;
};

std::string message_of(const std::string& line) { return line.substr(std::min(line.find(' ') + 1, line.size())); }

Process start(const Trial& trial, uint32_t rank, const std::string& program, const std::string& folder) {
  int pipe[2];
  if (::pipe2(pipe, O_CLOEXEC) != 0) std::abort();
  const pid_t child = ::fork();
  if (child == 0) {
    ::dup2(pipe[1], 1);
    const auto set = [](const char* name, const std::string& value) { ::setenv(name, value.c_str(), 1); };
    set("TUTTI_RANK", std::to_string(rank));
    set("TUTTI_WORLD_SIZE", std::to_string(trial.nranks));
    set("TUTTI_RENDEZVOUS", "file:" + folder);
    set("TUTTI_LOG", "error");
    if (trial.carrier == Carrier::shm) set("TUTTI_TRANSPORT", "shm");
    if (trial.carrier == Carrier::tcp) set("TUTTI_TRANSPORT", "tcp");
    // Two pretend hosts: shared memory inside each, TCP between them.
    if (trial.carrier == Carrier::mixed) set("TUTTI_HOST_ID", rank < (trial.nranks + 1) / 2 ? "a" : "b");
    const std::string arguments[] = {program,
                                     "rank",
                                     folder,
                                     std::to_string(rank),
                                     std::to_string(static_cast<int>(trial.fault)),
                                     std::to_string(static_cast<int>(trial.moment)),
                                     std::to_string(trial.nranks),
                                     std::to_string(trial.victim),
                                     std::to_string(trial.delay_us),
                                     std::to_string(trial.second),
                                     std::to_string(trial.gap_us)};
    std::vector<char*> argv;
    for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(program.c_str(), argv.data());
    ::_exit(127);
  }
  ::close(pipe[1]);
  return {child, pipe[0], "", false};
}

// Reads what the processes say until all have ended but for a victim that is stopped; false: some hang.
bool listen(std::vector<Process>& processes, const Trial& trial) {
  const auto end = Clock::now() + kHang;
  while (true) {
    std::vector<pollfd> waiting;
    std::vector<Process*> whose;
    for (uint32_t r = 0; r < processes.size(); ++r)
      if (!processes[r].over && !(trial.fault == Fault::stop && r == trial.victim)) {
        waiting.push_back({processes[r].output, POLLIN, 0});
        whose.push_back(&processes[r]);
      }
    if (waiting.empty()) return true;
    if (Clock::now() > end) return false;
    ::poll(waiting.data(), waiting.size(), 100);
    for (size_t i = 0; i < waiting.size(); ++i) {
      if (!waiting[i].revents) continue;
      char bytes[4096];
      const ssize_t n = ::read(waiting[i].fd, bytes, sizeof bytes);
      if (n > 0) whose[i]->text.append(bytes, static_cast<size_t>(n));
      if (n <= 0) whose[i]->over = true;
    }
  }
}

// Creation may end before anybody has met the lost rank, and an error of destroy begins with what was destroyed.
bool names_the_lost(const Trial& trial, const std::string& error) {
  const bool within = trial.moment == Moment::creation || trial.moment == Moment::destroy;
  if (trial.second != UINT32_MAX) {
    const auto [low, high] = std::minmax(trial.victim, trial.second);
    if (within && error.find("ranks " + std::to_string(low) + " and " + std::to_string(high)) != std::string::npos)
      return true;
  }
  for (const uint32_t rank : {trial.victim, trial.second}) {
    const std::string lost = "rank " + std::to_string(rank);
    if (within ? error.find(lost) != std::string::npos : error.starts_with(lost + " ")) return true;
  }
  return false;
}

void judge_line(const Trial& trial, uint32_t rank, const std::string& line, Outcome& outcome,
                std::set<std::string>& sizes) {
  const std::string who = "rank " + std::to_string(rank);
  const std::string text = message_of(line);
  if (line.starts_with("defect ")) outcome.defects.push_back(who + ": " + text);
  if (line.starts_with("shrunk ")) {
    sizes.insert(text.substr(0, text.find(' ')));
    outcome.twice |= text.find(" in 2 ") != std::string::npos;
    outcome.back_ms = std::max(outcome.back_ms, std::atof(text.c_str() + text.rfind(' ')));
  }
  if (!line.starts_with("error ")) return;
  outcome.noticed = true;
  outcome.slowest_ms = std::max(outcome.slowest_ms, std::atof(text.c_str()));
  const std::string error = message_of(text);
  outcome.errors.push_back(error);
  if (!names_the_lost(trial, error)) outcome.defects.push_back(who + " does not name the lost rank: " + error);
}

void judge(const Trial& trial, const std::vector<Process>& processes, Outcome& outcome) {
  std::set<std::string> sizes;
  for (uint32_t rank = 0; rank < processes.size(); ++rank) {
    if (rank == trial.victim || rank == trial.second) continue;
    const std::string& text = processes[rank].text;
    for (size_t begin = 0; begin < text.size();) {
      const size_t end = std::min(text.find('\n', begin), text.size());
      judge_line(trial, rank, text.substr(begin, end - begin), outcome, sizes);
      begin = end + 1;
    }
    if (text.empty() && trial.moment != Moment::destroy)
      outcome.defects.push_back("rank " + std::to_string(rank) + " says nothing");
  }
  if (sizes.size() > 1) outcome.defects.push_back("the survivors' new communicators differ in size");
  const bool all_go_on = trial.moment != Moment::creation && trial.moment != Moment::destroy;
  const std::string left = std::to_string(trial.nranks - (trial.second == UINT32_MAX ? 1 : 2));
  if (all_go_on && (sizes.size() != 1 || *sizes.begin() != left))
    outcome.defects.push_back("the new communicator has not " + left + " ranks");
}

}  // namespace

const char* name_of(Fault fault) {
  constexpr const char* names[] = {"SIGKILL", "SIGSTOP", "2 SIGKILL"};
  return names[static_cast<int>(fault)];
}
const char* name_of(Moment moment) {
  constexpr const char* names[] = {"creation", "first call", "mid-operation", "idle", "destroy"};
  return names[static_cast<int>(moment)];
}
const char* name_of(Carrier carrier) {
  constexpr const char* names[] = {"shm", "tcp", "shm+tcp"};
  return names[static_cast<int>(carrier)];
}

Trial make_trial(uint64_t seed, Fault fault) {
  // The longest delay after the moment has begun, in microseconds: so long that the fault meets all parts of it.
  constexpr uint32_t longest[] = {40'000, 20'000, 60'000, 200'000, 1'500};
  std::mt19937_64 random(seed);
  Trial trial;
  trial.seed = seed;
  trial.fault = fault;
  trial.moment = static_cast<Moment>(seed % 5);
  trial.carrier = static_cast<Carrier>(seed / 5 % 3);
  trial.nranks = static_cast<uint32_t>((trial.carrier == Carrier::mixed ? 3 : 2) + random() % 6);
  trial.nranks = std::min(trial.nranks, 8u);
  trial.victim = static_cast<uint32_t>(random() % trial.nranks);
  trial.delay_us = static_cast<uint32_t>(random() % longest[seed % 5]);
  if (fault == Fault::kill_two) {
    trial.nranks = std::max(trial.nranks, 3u);
    trial.second = static_cast<uint32_t>((trial.victim + 1 + random() % (trial.nranks - 1)) % trial.nranks);
    // At once, or while the others shrink.
    trial.gap_us = static_cast<uint32_t>(random() % (random() % 2 ? 1'000 : 30'000));
  }
  return trial;
}

std::string describe(const Trial& trial) {
  return std::string(name_of(trial.fault)) + " of rank " + std::to_string(trial.victim) +
         (trial.second == UINT32_MAX
              ? ""
              : " and, " + std::to_string(trial.gap_us) + " us later, rank " + std::to_string(trial.second)) +
         " of " + std::to_string(trial.nranks) + " at " + name_of(trial.moment) + " + " +
         std::to_string(trial.delay_us) + " us over " + name_of(trial.carrier) + " (--seed " +
         std::to_string(trial.seed) + ")";
}

Outcome run(const Trial& trial, const std::string& program) {
  std::string folder = std::filesystem::temp_directory_path().string() + "/tutti-survival-XXXXXX";
  if (!::mkdtemp(folder.data())) std::abort();
  std::ofstream(folder + "/clock") << std::string(4096, '\0');
  Outcome outcome;
  std::vector<Process> processes;
  for (uint32_t rank = 0; rank < trial.nranks; ++rank) processes.push_back(start(trial, rank, program, folder));
  const bool ended = listen(processes, trial);
  if (!ended) {
    std::string who;
    for (uint32_t rank = 0; rank < trial.nranks; ++rank)
      if (!processes[rank].over && rank != trial.victim) who += " " + std::to_string(rank);
    outcome.defects.push_back("hang of" + who);
  }
  for (Process& process : processes) {
    ::kill(process.id, SIGKILL);
    ::waitpid(process.id, nullptr, 0);
    ::close(process.output);
  }
  if (ended) judge(trial, processes, outcome);
  std::filesystem::remove_all(folder);
  return outcome;
}

}  // namespace survival
