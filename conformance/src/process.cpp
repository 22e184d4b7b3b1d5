// SPDX-License-Identifier: Apache-2.0
#include "process.hpp"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <stdexcept>
#include <thread>

#include "worker.hpp"

namespace tutti::conformance {
namespace {

constexpr int above_worker_descriptors = 10;

[[noreturn]] void system_failure(const char* what) {
  throw std::runtime_error(std::string("starting a worker: ") + what + ": " + std::strerror(errno));
}

// Both ends above the numbers that the worker gives a meaning to, closed on exec.
void make_pipe(int ends[2]) {
  int low[2];
  if (pipe2(low, O_CLOEXEC) != 0) system_failure("pipe");
  for (int i = 0; i < 2; ++i) {
    ends[i] = fcntl(low[i], F_DUPFD_CLOEXEC, above_worker_descriptors);
    close(low[i]);
  }
  if (ends[0] < 0 || ends[1] < 0) system_failure("pipe");
}

int output_file() {
  const int low = memfd_create("tutti-conform-output", MFD_CLOEXEC);
  if (low < 0) system_failure("memfd_create");
  const int file = fcntl(low, F_DUPFD_CLOEXEC, above_worker_descriptors);
  close(low);
  if (file < 0) system_failure("memfd_create");
  return file;
}

// In the child, whose output goes to its file already.
void enter(const std::string& netns) {
  const std::string path = "/run/netns/" + netns;
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file >= 0 && setns(file, CLONE_NEWNET) == 0) return;
  dprintf(2, "cannot enter the network namespace %s: %s\n", path.c_str(), std::strerror(errno));
  _exit(126);
}

}  // namespace

Process::Process(const std::string& program, const std::vector<std::string>& environment, const std::string& netns) {
  int orders[2], answers[2];
  make_pipe(orders);
  make_pipe(answers);
  output_ = output_file();
  std::signal(SIGPIPE, SIG_IGN);
  prctl(PR_SET_CHILD_SUBREAPER, 1);  // what a worker leaves behind comes to us, to be killed and reaped
  pid_ = fork();
  if (pid_ < 0) system_failure("fork");
  if (pid_ == 0) exec(program, environment, netns, orders[0], answers[1]);
  setpgid(pid_, pid_);  // both parent and child do it, so that it has happened whoever comes first
  close(orders[0]);
  close(answers[1]);
  orders_ = orders[1];
  answers_ = answers[0];
  fcntl(answers_, F_SETFL, O_NONBLOCK);
}

void Process::exec(const std::string& program, const std::vector<std::string>& environment, const std::string& netns,
                   int orders, int answers) const {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setpgid(0, 0);
  std::signal(SIGPIPE, SIG_DFL);
  const int nothing = open("/dev/null", O_RDONLY);
  dup2(nothing, 0);
  dup2(output_, 1);
  dup2(output_, 2);
  dup2(orders, worker_orders);
  dup2(answers, worker_answers);
  if (!netns.empty()) enter(netns);
  std::vector<char*> variables;
  for (const std::string& one : environment) variables.push_back(const_cast<char*>(one.c_str()));
  variables.push_back(nullptr);
  char* const arguments[] = {const_cast<char*>(program.c_str()), const_cast<char*>(worker_argument), nullptr};
  execve(program.c_str(), arguments, variables.data());
  dprintf(2, "cannot execute %s: %s\n", program.c_str(), std::strerror(errno));
  _exit(127);
}

Process::~Process() {
  kill_group();
  end_orders();
  close(answers_);
  close(output_);
}

bool Process::order(const std::string& line) {
  const std::string text = line + "\n";
  for (size_t at = 0; at < text.size();) {
    const ssize_t n = write(orders_, text.data() + at, text.size() - at);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    at += static_cast<size_t>(n);
  }
  return true;
}

void Process::end_orders() {
  if (orders_ >= 0) close(orders_);
  orders_ = -1;
}

bool Process::read_answers() {
  for (;;) {
    char part[65536];
    const ssize_t n = read(answers_, part, sizeof part);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return errno == EAGAIN;
    if (n == 0) return false;
    pending_.append(part, static_cast<size_t>(n));
  }
}

std::optional<std::string> Process::next_answer() {
  const size_t end = pending_.find('\n');
  if (end == std::string::npos) return std::nullopt;
  std::string line = pending_.substr(0, end);
  pending_.erase(0, end + 1);
  return line;
}

bool Process::wait(int milliseconds) {
  const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(milliseconds);
  while (!ended_) {
    const pid_t got = waitpid(pid_, &status_, WNOHANG);
    if (got == pid_ || (got < 0 && errno == ECHILD)) {
      ended_ = true;
    } else if (std::chrono::steady_clock::now() >= until) {
      return false;
    } else {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  }
  return true;
}

bool Process::ended_well() const { return ended_ && WIFEXITED(status_) && WEXITSTATUS(status_) == 0; }

std::string Process::how() const {
  if (!ended_) return "still runs";
  if (WIFSIGNALED(status_))
    return "was killed by signal " + std::to_string(WTERMSIG(status_)) + " (" + strsignal(WTERMSIG(status_)) + ")";
  return "exited with status " + std::to_string(WEXITSTATUS(status_));
}

int Process::kill_group() {
  if (!ended_) {
    kill(-pid_, SIGKILL);
    kill(pid_, SIGKILL);
    wait(10'000);
  }
  int others = 0;
  // Dead ones first: they ended by themselves and only wait to be reaped.
  while (waitpid(-pid_, nullptr, WNOHANG) > 0) {
  }
  while (kill(-pid_, SIGKILL) == 0) {
    const pid_t got = waitpid(-pid_, nullptr, 0);
    if (got <= 0) break;
    ++others;
  }
  return others;
}

std::string Process::output_tail() const {
  constexpr off_t most = 2000;
  const off_t size = lseek(output_, 0, SEEK_END);
  if (size <= 0) return {};
  const off_t begin = size > most ? size - most : 0;
  std::string text(static_cast<size_t>(size - begin), '\0');
  const ssize_t n = pread(output_, text.data(), text.size(), begin);
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

}  // namespace tutti::conformance
