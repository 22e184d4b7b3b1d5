// SPDX-License-Identifier: Apache-2.0
#include "fuzz/child.hpp"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <thread>

namespace tutti::conformance::fuzz {
namespace {

// A child that does not end within this time hangs.
constexpr std::chrono::seconds longest_child{8};
constexpr int not_refused = 3, not_executed = 4;

pid_t forked() {
  const pid_t child = fork();
  if (child < 0) throw std::runtime_error("error: fork: the system refused");
  return child;
}

void require_refused(tutti_status status, const char* call) {
  if (status < 0) return;
  dprintf(STDERR_FILENO, "%s in a forked child gave %d (%s), expected an error\n", call, status,
          tutti_status_text(status));
  _exit(not_refused);
}

}  // namespace

pid_t start_child(const std::string& what, uint32_t ms, const std::vector<tutti_request*>& requests,
                  const std::vector<tutti_comm*>& comms) {
  if (const pid_t child = forked()) return child;
  if (what == "hold") usleep(ms * 1000);
  if (what == "hold" || what == "quick") _exit(0);
  if (what == "exec") {
    execl("/bin/true", "true", nullptr);
    _exit(not_executed);
  }
  if (what == "calls") {
    for (tutti_request* request : requests) {
      require_refused(tutti_request_test(request), "tutti_request_test");
      require_refused(tutti_request_wait_for(request, 1000), "tutti_request_wait_for");
      require_refused(tutti_request_wait(request), "tutti_request_wait");
    }
    for (tutti_comm* comm : comms) require_refused(tutti_barrier(comm, nullptr, nullptr), "tutti_barrier");
  }
  for (tutti_request* request : requests) tutti_request_free(request);
  for (tutti_comm* comm : comms) tutti_comm_destroy(comm);
  std::exit(0);
}

std::string end_of_child(pid_t child) {
  const auto until = std::chrono::steady_clock::now() + longest_child;
  int status = 0;
  while (waitpid(child, &status, WNOHANG) != child) {
    if (std::chrono::steady_clock::now() > until) {
      kill(child, SIGKILL);
      waitpid(child, &status, 0);
      return fmt::format("did not end within {} s", longest_child.count());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  if (WIFSIGNALED(status)) return fmt::format("was killed by signal {}", WTERMSIG(status));
  return WEXITSTATUS(status) ? fmt::format("ended with status {}", WEXITSTATUS(status)) : "";
}

void stop_for(uint32_t ms) {
  const pid_t self = getpid();
  const pid_t helper = forked();
  if (helper == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    // More than once: a busy machine may let the first signal come before the stop.
    for (;;) {
      usleep(ms * 1000);
      kill(self, SIGCONT);
    }
  }
  raise(SIGSTOP);
  kill(helper, SIGKILL);
  waitpid(helper, nullptr, 0);
}

}  // namespace tutti::conformance::fuzz
