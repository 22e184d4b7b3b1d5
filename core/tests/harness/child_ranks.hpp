// SPDX-License-Identifier: Apache-2.0
//
// Ranks in child processes of the test, whose crash or hang is a failure of the case that started them and of no other.
// The test itself has no communicator and no other thread.
#pragma once

#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "ranks.hpp"

namespace tutti::test {

enum class Ranks {
  threads,   // of one child
  processes  // a child for each
};
constexpr const char* name_of(Ranks kind) { return kind == Ranks::threads ? "threads" : "processes"; }

// Forks a child that runs `body` and ends with status 1 where a test failed in it.
template <typename Body>
pid_t fork_child(Body&& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child != 0) return child;
  try {
    body();
  } catch (const std::exception& e) {
    ADD_FAILURE() << e.what();
  }
  std::fflush(nullptr);
  _exit(testing::Test::HasFailure() ? 1 : 0);
}

// Longer than any deadline of a rank.
constexpr int kChildMs = 180'000;

// Waits for a child's end. A test failure unless it succeeds.
inline void expect_success(pid_t child, const std::string& who) {
  if (child < 0) {
    ADD_FAILURE() << who << " cannot be forked: " << strerror(errno);
    return;
  }
  const int descriptor = static_cast<int>(syscall(SYS_pidfd_open, child, 0));
  pollfd end{descriptor, POLLIN, 0};
  const bool ended =
      descriptor < 0 || poll(&end, 1, kChildMs) == 1;  // without one waitpid waits, and ctest's limit ends it
  if (descriptor >= 0) close(descriptor);
  if (!ended) kill(child, SIGKILL);
  int status = 0;
  waitpid(child, &status, 0);
  if (!ended)
    ADD_FAILURE() << who << " did not end within " << kChildMs / 1000 << " s";
  else if (WIFSIGNALED(status))
    ADD_FAILURE() << who << " died of " << strsignal(WTERMSIG(status));
  else if (WEXITSTATUS(status) != 0)
    ADD_FAILURE() << who << " failed, as told above";
}

// Runs `body` on n ranks. Each child runs `begin` first. `what` names the case in failures.
inline void run_in_children(
    Ranks kind, uint32_t n, const std::string& what, const std::function<void(Communicator&)>& body, Setup setup,
    const std::function<void()>& begin = [] {}) {
  const std::string who = what + ", ranks as " + name_of(kind);
  if (kind == Ranks::threads)
    return expect_success(fork_child([&] {
                            begin();
                            run_ranks(n, body, setup);
                          }),
                          who);
  std::string folder = std::filesystem::temp_directory_path() / "tutti-children-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < n; ++rank)
    children.push_back(fork_child([&] {
      begin();
      const std::string place = "file:" + folder;
      tutti_comm_config config = config_of(place, rank, n);
      config.transports = setup.transports;
      config.algorithms = setup.algorithms;
      config.flags = setup.flags;
      config.timeout_ns = setup.timeout_ns;
      Communicator comm(config);
      body(comm);
    }));
  for (uint32_t rank = 0; rank < n; ++rank) expect_success(children[rank], who + ": rank " + std::to_string(rank));
  std::filesystem::remove_all(folder);
}

}  // namespace tutti::test
