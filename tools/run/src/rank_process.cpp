// SPDX-License-Identifier: Apache-2.0
#include "rank_process.hpp"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

namespace tuttirun {
namespace {

// In the child. Gives errno and the step that failed; does not return when all went well.
StartFailure become_rank(const RankStart& start, pid_t parent, int out, int err) {
  if (::setpgid(0, 0) != 0) return {errno, "setpgid"};
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return {errno, "prctl"};
  if (::getppid() != parent) ::_exit(0);  // tuttirun died before that was set
  if (start.network_namespace >= 0 && ::setns(start.network_namespace, CLONE_NEWNET) != 0) return {errno, "setns"};
  if (CPU_COUNT(&start.cores) > 0 && ::sched_setaffinity(0, sizeof start.cores, &start.cores) != 0)
    return {errno, "sched_setaffinity"};
  const int in = start.input ? 0 : ::open("/dev/null", O_RDONLY | O_CLOEXEC);
  if (in < 0) return {errno, "open /dev/null"};
  if (::dup2(in, 0) < 0 || ::dup2(out, 1) < 0 || ::dup2(err, 2) < 0) return {errno, "dup2"};
  ::signal(SIGPIPE, SIG_DFL);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  std::vector<char*> argv, envp;
  for (const auto& argument : start.command) argv.push_back(const_cast<char*>(argument.c_str()));
  for (const auto& variable : start.environment) envp.push_back(const_cast<char*>(variable.c_str()));
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  ::execvpe(argv[0], argv.data(), envp.data());
  return {errno, "exec"};
}

}  // namespace

RankProcess start_rank(const RankStart& start) {
  int pipes[3][2] = {{-1, -1}, {-1, -1}, {-1, -1}};  // output, error, a failed start
  const auto close_all = [&] {
    for (auto& ends : pipes)
      for (const int fd : ends)
        if (fd >= 0) ::close(fd);
  };
  for (auto& ends : pipes)
    if (::pipe2(ends, O_CLOEXEC) != 0) {
      const int error = errno;
      close_all();
      throw StartFailure{error, "pipe (ulimit -n may be too low)"};
    }
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    const StartFailure failure = become_rank(start, parent, pipes[0][1], pipes[1][1]);
    if (::write(pipes[2][1], &failure, sizeof failure) != sizeof failure) ::_exit(125);
    ::_exit(127);
  }
  const int fork_error = errno;
  if (child > 0) ::setpgid(child, child);  // whoever comes first
  ::close(pipes[2][1]);
  pipes[2][1] = -1;
  StartFailure failure{fork_error, "fork"};
  ssize_t n = 0;
  // The pointer to the step's name is good here too: the child was a copy of this process.
  while (child > 0 && (n = ::read(pipes[2][0], &failure, sizeof failure)) < 0 && errno == EINTR) {
  }
  if (child < 0 || n == sizeof failure) {
    if (child > 0) ::waitpid(child, nullptr, 0);
    close_all();
    throw failure;
  }
  ::close(pipes[2][0]);
  ::close(pipes[0][1]);
  ::close(pipes[1][1]);
  for (const int fd : {pipes[0][0], pipes[1][0]}) ::fcntl(fd, F_SETFL, O_NONBLOCK);
  return {child, pipes[0][0], pipes[1][0]};
}

}  // namespace tuttirun
