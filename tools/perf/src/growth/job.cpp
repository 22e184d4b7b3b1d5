// SPDX-License-Identifier: Apache-2.0
#include "growth/job.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <stdexcept>
#include <system_error>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "growth/record.hpp"

namespace perf {
namespace {

constexpr std::chrono::milliseconds look(10);  // between two looks whether the job has ended

std::chrono::nanoseconds now() { return std::chrono::steady_clock::now().time_since_epoch(); }

// One rank's part of the job.
class Rank {
 public:
  Rank(const GrowthJob& job, JobRecord& record, uint32_t rank)
      : job_(job), record_(record), rank_(rank), mine_(record.ranks()[rank]) {}

  void run() {
    std::optional<tutti::Communicator> world;
    std::vector<tutti::Communicator> parts;
    look_at(Moment::before);
    if (rank_ == 0) make_rendezvous();
    timed(Phase::create, [&] { world.emplace(config()); });
    timed(Phase::first_call, [&] { call(*world); });
    timed(Phase::next_call, [&] { call(*world); });
    look_at(Moment::used);
    const auto split = [&] { parts.push_back(*world->split(rank_ < job_.nranks / 2 ? 0 : 1)); };
    timed(Phase::split, split);
    look_at(Moment::family);
    timed(Phase::next_splits, [&] {
      for (uint32_t i = 1; i < job_.splits; ++i) split();
    });
    timed(Phase::part_first_calls, [&] {
      for (uint32_t i = 1; i < job_.splits; ++i) call(parts[i]);
    });
    look_at(Moment::parts);
    timed(Phase::part_destroys, [&] { parts.clear(); });
    timed(Phase::destroy, [&] { world.reset(); });
    record_.wait_for_all();
  }

 private:
  template <typename Body>
  void timed(Phase phase, Body&& body) {
    record_.wait_for_all();
    const auto at = static_cast<size_t>(phase);
    record_.phase = static_cast<int>(phase);
    mine_.begin[at] = now();
    body();
    mine_.end[at] = now();
  }

  // When all ranks have come here; none goes on before all have looked. Of ranks of one process the first looks.
  void look_at(Moment moment) {
    record_.wait_for_all();
    if (!job_.threads || rank_ == 0) mine_.at[static_cast<size_t>(moment)] = resources_now();
    record_.wait_for_all();
  }

  void make_rendezvous() {
    std::string text = "local:tutti-perf-growth";
    if (!job_.threads) {
      tutti_unique_id id{};
      const tutti_status status = tutti_unique_id_create(&id);
      if (status < 0) throw tutti::Error(status, "tutti_unique_id_create: " + std::string(tutti_status_text(status)));
      text = id.text;
    }
    text.copy(record_.rendezvous, sizeof record_.rendezvous - 1);
  }

  // The job's limit ends a wait, not the library's.
  tutti_comm_config config() const {
    constexpr uint64_t day_ns = 86400ull * 1000000000;
    tutti_comm_config config = tutti::Communicator::defaults();
    config.name = "tutti-perf";
    config.rendezvous = record_.rendezvous;
    config.rank = rank_;
    config.nranks = job_.nranks;
    config.device = "none";
    config.connect_timeout_ns = day_ns;
    config.timeout_ns = day_ns;
    return config;
  }

  static void call(const tutti::Communicator& comm) {
    double sum = comm.rank();
    comm.all_reduce(std::span(&sum, 1), std::span(&sum, 1), tutti::Op::sum);
    const double expected = 0.5 * comm.nranks() * (comm.nranks() - 1);
    if (sum != expected)
      throw std::runtime_error(
          fmt::format("all_reduce of {} ranks: expected {}, got {}", comm.nranks(), expected, sum));
  }

  const GrowthJob& job_;
  JobRecord& record_;
  uint32_t rank_;
  RankRecord& mine_;
};

// Runs a rank to the end of the job. A failure ends the calling process: other ranks would wait for this one.
void run_rank(const GrowthJob& job, JobRecord& record, uint32_t rank) {
  try {
    Rank(job, record, rank).run();
  } catch (const std::exception& error) {
    record.fail(fmt::format("rank {}: {}", rank, error.what()));
    _exit(1);
  }
}

int run_as_threads(const GrowthJob& job, JobRecord& record) {
  std::vector<std::thread> ranks;
  try {
    while (ranks.size() < job.nranks)
      ranks.emplace_back(run_rank, std::cref(job), std::ref(record), static_cast<uint32_t>(ranks.size()));
  } catch (const std::system_error& error) {
    record.fail(fmt::format("thread {} cannot be started: {}; is the limit of processes too low (ulimit -u)?",
                            ranks.size(), error.what()));
    _exit(1);
  }
  for (std::thread& rank : ranks) rank.join();
  return 0;
}

int run_as_processes(const GrowthJob& job, JobRecord& record) {
  const pid_t parent = getpid();
  std::vector<pid_t> ranks;
  while (ranks.size() < job.nranks) {
    const pid_t child = fork();
    if (child == 0) {
      if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
      run_rank(job, record, static_cast<uint32_t>(ranks.size()));
      _exit(0);
    }
    if (child < 0) {
      record.fail(fmt::format("process {} cannot be started: {}; is the limit of processes too low (ulimit -u)?",
                              ranks.size(), std::strerror(errno)));
      return 1;  // which ends those that have started
    }
    ranks.push_back(child);
  }
  for (size_t ended = 0; ended < ranks.size(); ++ended) {
    int status = 0;
    const pid_t child = waitpid(-1, &status, 0);
    if (status == 0) continue;
    const auto rank = std::ranges::find(ranks, child) - ranks.begin();
    record.fail(WIFSIGNALED(status) ? fmt::format("rank {}: killed by signal {}{}", rank, WTERMSIG(status),
                                                  WTERMSIG(status) == SIGKILL ? "; is the memory too small?" : "")
                                    : fmt::format("rank {}: ended with status {}", rank, WEXITSTATUS(status)));
    return 1;
  }
  return 0;
}

[[noreturn]] void run_in_child(const GrowthJob& job, JobRecord& record, pid_t parent) {
  setpgid(0, 0);
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent) _exit(1);
  rlimit files{};
  if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
  }
  _exit(job.threads ? run_as_threads(job, record) : run_as_processes(job, record));
}

// The status of the job's process. Nothing: it was killed at the end of its time.
std::optional<int> wait_for(pid_t child, std::chrono::steady_clock::time_point end) {
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    if (std::chrono::steady_clock::now() >= end) {
      kill(-child, SIGKILL);
      waitpid(child, &status, 0);
      return std::nullopt;
    }
    std::this_thread::sleep_for(look);
  }
  kill(-child, SIGKILL);  // ranks that a failed job has left behind
  return status;
}

}  // namespace

GrowthResult run_job(const GrowthJob& job, std::chrono::duration<double> limit) {
  const std::unique_ptr<JobRecord, void (*)(JobRecord*)> record(JobRecord::make(job.nranks), JobRecord::release);
  const auto end =
      std::chrono::steady_clock::now() + std::chrono::duration_cast<std::chrono::steady_clock::duration>(limit);
  const pid_t parent = getpid(), child = fork();
  if (child == 0) run_in_child(job, *record, parent);
  if (child < 0)
    return {{}, fmt::format("the job's process cannot be started: {} (ulimit -u)", std::strerror(errno))};
  setpgid(child, child);
  const std::optional<int> status = wait_for(child, end);
  if (!status)
    return {{}, fmt::format("stopped after {:.4g} s in {}: give more time with --limit", limit.count(),
                            phase_name(static_cast<Phase>(record->phase.load())))};
  if (*status == 0) return {cost_of(record->ranks(), job.splits), ""};
  if (const std::string error = record->error(); !error.empty()) return {{}, error};
  return {{}, WIFSIGNALED(*status) ? fmt::format("killed by signal {}", WTERMSIG(*status))
                                   : fmt::format("ended with status {}", WEXITSTATUS(*status))};
}

}  // namespace perf
