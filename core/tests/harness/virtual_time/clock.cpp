// SPDX-License-Identifier: Apache-2.0
#include "clock.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <stdexcept>
#include <string>
#include <utility>

#include "virtual_time.hpp"

namespace tutti::test {

VirtualTime::VirtualTime() {
  virtual_time::Clock::process().start();
  begin_ = std::chrono::steady_clock::now();
}

VirtualTime::~VirtualTime() { virtual_time::Clock::process().stop(); }

namespace virtual_time {

namespace {

constexpr int64_t ms = 1'000'000, longest_nap = 250 * ms, quiet = 10 * ms, least_step = ms;
constexpr uint64_t turns_per_step = 4;
constexpr int64_t for_ever = 1'000'000'000 * ms;  // as long as twelve days: no deadline is meant

pid_t own_tid() {
  static thread_local const pid_t tid = gettid();
  return tid;
}

int wake_signal() { return SIGRTMAX - 1; }

// The kernel's own clock and sleep, past the functions that are replaced.
void sleep_really(int64_t ns) {
  const timespec time{0, static_cast<long>(ns)};
  syscall(SYS_clock_nanosleep, CLOCK_MONOTONIC, 0, &time, nullptr);
}

// The file about a thread; empty: it has ended.
std::string status_of(const std::string& tid) {
  const int file = open(("/proc/self/task/" + tid + "/status").c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return {};
  char text[4096];
  const ssize_t bytes = read(file, text, sizeof text);
  close(file);
  return {text, bytes > 0 ? static_cast<size_t>(bytes) : 0};
}

const char* value(const std::string& status, const char* name) {
  const size_t at = status.find(name);
  if (at == std::string::npos) throw std::runtime_error(std::string(name) + " is not in /proc/self/task/*/status");
  return status.c_str() + at + std::strlen(name);
}

uint64_t number(const std::string& status, const char* name) { return std::strtoull(value(status, name), nullptr, 10); }

}  // namespace

Clock& Clock::process() {
  static Clock& clock = *new Clock();  // threads may outlive static destruction
  return clock;
}

void Clock::start() {
  if (keeper_.joinable()) throw std::logic_error("there is a VirtualTime already");
  struct sigaction action{};
  action.sa_handler = [](int) {};
  // Only the waits that are registered are to be cut short, and they are not among what is restarted. The handler
  // stays for good: a signal may still be on its way when the clock stops.
  action.sa_flags = SA_RESTART;
  if (sigaction(wake_signal(), &action, nullptr) != 0) throw std::runtime_error("sigaction failed");
  used_.store(true, std::memory_order_release);
  runs_ = true;
  seen_.clear();
  last_event_ = now();
  keeper_ = std::thread([this] { keep(); });
}

void Clock::stop() {
  runs_ = false;
  keeper_.join();
}

void Clock::keep() {
  while (runs_) {
    sleep_really(ms);
    const auto all = tasks();
    const std::lock_guard lock(mutex_);
    bool any_polls = false;
    if (all && all_wait(*all, any_polls)) step(any_polls);
    wake_due();
  }
}

// All threads but the keeper; nothing if one may be missing. A thread that ends while the kernel lists the folder cuts
// the list short, and its own file is gone then: there are fewer files than threads.
std::optional<std::map<pid_t, Clock::Task>> Clock::tasks() {
  std::map<pid_t, Task> found;
  DIR* const folder = opendir("/proc/self/task");
  if (!folder) throw std::runtime_error("/proc/self/task cannot be read");
  while (const dirent* entry = readdir(folder)) {
    const pid_t tid = std::atoi(entry->d_name);
    if (tid == 0 || tid == own_tid()) continue;
    const std::string status = status_of(entry->d_name);
    if (!status.empty())
      found[tid] = {value(status, "\nState:\t")[0] == 'S',
                    number(status, "\nvoluntary_ctxt_switches:\t") + number(status, "\nnonvoluntary_ctxt_switches:\t")};
  }
  closedir(folder);
  const uint64_t threads = number(status_of(std::to_string(own_tid())), "\nThreads:\t");
  if (threads != found.size() + 1) return std::nullopt;
  return found;
}

bool Clock::all_wait(const std::map<pid_t, Task>& tasks, bool& any_polls) {
  std::erase_if(seen_, [&](const auto& entry) { return !tasks.contains(entry.first); });
  bool all = true;
  for (const auto& [tid, task] : tasks) {
    const Idle idle = judge(threads_[tid], task, seen_[tid]);
    all &= idle != Idle::no;
    any_polls |= idle == Idle::polls;
  }
  return all;
}

// A thread that wakes another one runs between its own two looks, so it is found out here even if the other one was
// looked at before.
Clock::Idle Clock::judge(const Thread& thread, const Task& task, Seen& seen) {
  const bool first = !std::exchange(seen.known, true);
  const bool ran = first || seen.switches != task.switches || seen.begun != thread.begun;
  // A thread that never waits by the clock, as a sanitizer has one, may look around at any time.
  const bool ran_elsewhere = ran && seen.begun == thread.begun && thread.begun > 0 && !thread.naps;
  const bool event = !first && (seen.events != thread.events || ran_elsewhere);
  if (event) last_event_ = now();
  if (event || first) seen.begun_at_step = thread.begun;
  seen.begun = thread.begun;
  seen.events = thread.events;
  seen.switches = task.switches;
  if (ran || !task.asleep) seen.asleep_since = real_now();
  if (thread.waits && thread.begun >= seen.begun_at_step + turns_per_step) return Idle::polls;
  return real_now() - seen.asleep_since >= quiet ? Idle::asleep : Idle::no;
}

void Clock::step(bool any_polls) {
  int64_t earliest = no_deadline;
  for (const auto& [tid, thread] : threads_) {
    if (!thread.waits) continue;
    if (thread.naps)
      any_polls = true;
    else
      earliest = std::min(earliest, thread.deadline);
  }
  const int64_t time = now();
  if (any_polls) earliest = std::min(earliest, time + std::max(least_step, (time - last_event_) / 8));
  if (earliest == no_deadline) return;
  if (earliest > time) offset_.fetch_add(earliest - time, std::memory_order_acq_rel);
  for (auto& [tid, seen] : seen_) seen.begun_at_step = seen.begun;
}

// A thread that is about to begin its wait misses this; it is woken again in the next turn.
void Clock::wake_due() {
  for (auto& [tid, thread] : threads_) {
    if (!thread.waits || thread.offset == offset() || thread.deadline > now()) continue;
    thread.woken = true;
    if (thread.condition)
      pthread_cond_broadcast(thread.condition);
    else
      syscall(SYS_tgkill, getpid(), tid, wake_signal());
  }
}

void Clock::note_event() {
  if (!runs_) return;
  const std::lock_guard lock(mutex_);
  ++threads_[own_tid()].events;
}

Wait::Wait(int64_t deadline, pthread_cond_t* condition)
    : deadline_(deadline - Clock::process().now() < for_ever ? deadline : Clock::no_deadline),
      told_(Clock::process().runs_),
      offset_(Clock::process().offset()) {
  Clock& clock = Clock::process();
  if (!told_) return;
  const std::lock_guard lock(clock.mutex_);
  Clock::Thread& thread = clock.threads_[own_tid()];
  offset_ = clock.offset();
  ++thread.begun;
  thread.waits = true;
  thread.naps = deadline_ - clock.now() <= longest_nap;
  thread.woken = false;
  thread.deadline = deadline_;
  thread.offset = offset_;
  thread.condition = condition;
}

Wait::~Wait() {
  if (!told_) return;
  Clock& clock = Clock::process();
  const std::lock_guard lock(clock.mutex_);
  Clock::Thread& thread = clock.threads_[own_tid()];
  thread.waits = false;
  if (event_ || !thread.naps) ++thread.events;
}

int64_t Wait::left() const { return std::max<int64_t>(0, deadline_ - Clock::process().now()); }

bool Wait::woken() const {
  if (!told_) return false;
  Clock& clock = Clock::process();
  const std::lock_guard lock(clock.mutex_);
  return clock.threads_[own_tid()].woken;
}

}  // namespace virtual_time
}  // namespace tutti::test
