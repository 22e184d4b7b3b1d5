// SPDX-License-Identifier: Apache-2.0
#include "network_hosts.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "keeper.hpp"

namespace tuttirun {
namespace {

// Beside this program, where the build and the installation put it.
std::string find_script() {
  if (const char* named = std::getenv("TUTTIRUN_HOSTS_SCRIPT"); named != nullptr) return named;
  return std::filesystem::read_symlink("/proc/self/exe").parent_path() / "tutti-netns-hosts";
}

}  // namespace

int run_script(const std::string& script, const std::vector<std::string>& arguments) {
  const pid_t child = ::fork();
  if (child < 0) throw std::runtime_error(std::string("fork: ") + std::strerror(errno));
  if (child == 0) {
    // Ctrl-C must not stop it half-way.
    ::setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    ::signal(SIGPIPE, SIG_DFL);
    std::vector<char*> argv{const_cast<char*>(script.c_str())};
    for (const auto& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
    argv.push_back(nullptr);
    ::execv(script.c_str(), argv.data());
    std::fprintf(stderr, "tuttirun: cannot run %s: %s\n", script.c_str(), std::strerror(errno));
    ::_exit(127);
  }
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

NetworkHosts::NetworkHosts(uint32_t hosts, Keeper& keeper)
    : script_(find_script()), prefix_("tutti-" + std::to_string(::getpid())) {
  if (::geteuid() != 0)
    throw std::runtime_error(
        "--hosts-as-netns makes network namespaces, which needs root; run it as root or leave it out");
  run_script(script_, {"sweep", "tutti"});
  keeper.watch_hosts(script_, prefix_);
  if (const int status = run_script(script_, {"up", prefix_, std::to_string(hosts)}); status != 0)
    throw std::runtime_error("--hosts-as-netns: " + script_ + " up " + prefix_ + " ended with status " +
                             std::to_string(status) + ": the namespaces cannot be made here");
  for (uint32_t host = 0; host < hosts; ++host) {
    const std::string path = "/run/netns/" + prefix_ + "-" + std::to_string(host);
    descriptors_.push_back(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (descriptors_.back() < 0) {
      const std::string why = path + ": " + std::strerror(errno);
      run_script(script_, {"down", prefix_});
      throw std::runtime_error("--hosts-as-netns: " + why);
    }
  }
}

cpu_set_t NetworkHosts::cores(uint32_t host) const {
  cpu_set_t usable, share;
  CPU_ZERO(&share);
  if (::sched_getaffinity(0, sizeof usable, &usable) != 0) return share;  // more cores than a cpu_set_t can name
  std::vector<int> cores;
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &usable)) cores.push_back(core);
  const size_t hosts = descriptors_.size();
  if (hosts > cores.size()) {
    CPU_SET(cores[host % cores.size()], &share);
  } else {
    for (size_t i = host * cores.size() / hosts; i < (host + 1) * cores.size() / hosts; ++i) CPU_SET(cores[i], &share);
  }
  return share;
}

NetworkHosts::~NetworkHosts() {
  for (const int descriptor : descriptors_) ::close(descriptor);
  run_script(script_, {"down", prefix_});
}

}  // namespace tuttirun
