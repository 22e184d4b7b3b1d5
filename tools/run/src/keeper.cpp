// SPDX-License-Identifier: Apache-2.0
#include "keeper.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <stdexcept>
#include <tutti/sdk/text.hpp>
#include <vector>

#include "network_hosts.hpp"

namespace tuttirun {
namespace {

constexpr char kGroup = 'g', kHosts = 'h', kDone = 'd';

// The process itself: lines of one letter and a text, until the end of the pipe.
[[noreturn]] void keep(int in) {
  std::string text;
  char bytes[4096];
  ssize_t n = 0;
  while ((n = ::read(in, bytes, sizeof bytes)) > 0 || (n < 0 && errno == EINTR))
    if (n > 0) text.append(bytes, static_cast<size_t>(n));
  std::string script, prefix;
  std::vector<pid_t> groups;
  for (size_t at = 0, end = 0; (end = text.find('\n', at)) != std::string::npos; at = end + 1) {
    const std::string value = text.substr(at + 1, end - at - 1);
    if (text[at] == kDone) ::_exit(0);
    if (text[at] == kGroup)
      if (const auto group = tutti::whole_number(value, 1, INT32_MAX)) groups.push_back(static_cast<pid_t>(*group));
    if (text[at] == kHosts) {
      const size_t tab = value.find('\t');
      script = value.substr(0, tab);
      prefix = value.substr(tab + 1);
    }
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  if (!script.empty()) run_script(script, {"down", prefix});
  ::_exit(0);
}

}  // namespace

Keeper::Keeper() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error(std::string("pipe: ") + std::strerror(errno));
  pid_ = ::fork();
  if (pid_ < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (pid_ == 0) {
    // Out of reach of the terminal's signals, and holding nobody's output open.
    ::setsid();
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_BLOCK, &all, nullptr);
    ::close(ends[1]);
    const int null = ::open("/dev/null", O_RDWR | O_CLOEXEC);
    for (const int fd : {0, 1, 2}) ::dup2(null, fd);
    keep(ends[0]);
  }
  ::close(ends[0]);
  pipe_ = ends[1];
}

Keeper::~Keeper() {
  tell(kDone, "");
  ::close(pipe_);
  ::waitpid(pid_, nullptr, 0);
}

void Keeper::watch_group(pid_t group) { tell(kGroup, std::to_string(group)); }

void Keeper::watch_hosts(const std::string& script, const std::string& prefix) { tell(kHosts, script + "\t" + prefix); }

void Keeper::tell(char kind, const std::string& text) {
  const std::string line = kind + text + "\n";
  // SIGPIPE is ignored; a keeper that was killed only takes its service with it.
  if (::write(pipe_, line.data(), line.size()) < 0 && kind == kGroup)
    std::fprintf(stderr, "tuttirun: the keeper process is gone: a SIGKILL of tuttirun may leave processes behind\n");
}

}  // namespace tuttirun
