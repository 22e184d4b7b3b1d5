// SPDX-License-Identifier: Apache-2.0
#include <dlfcn.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <tutti/registry.h>

#include <string_view>
#include <tutti/sdk/text.hpp>

#include "facts.hpp"
#include "info/src/host_facts.hpp"
#include "info/src/network.hpp"

namespace doctor {
namespace {

int64_t limit_of(rlim_t value) { return value == RLIM_INFINITY ? no_limit : static_cast<int64_t>(value); }

void read_limits(Process* process) {
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0) process->locked_memory = limit_of(limit.rlim_cur);
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    process->open_files = limit_of(limit.rlim_cur);
    process->most_open_files = limit_of(limit.rlim_max);
  }
  constexpr int lock_bit = 14;  // CAP_IPC_LOCK
  for (const std::string& line : Tree("/").lines("proc/self/status"))
    if (std::string_view rest = line; tutti::take_word(rest, "CapEff:\t")) {
      uint64_t capabilities = 0;
      tutti::take_number(rest, capabilities, 16);
      process->may_lock_memory = capabilities >> lock_bit & 1;
    }
  struct statvfs shm {};
  process->has_shm = statvfs("/dev/shm", &shm) == 0;
  process->shm_bytes = uint64_t{shm.f_blocks} * shm.f_frsize;
  process->shm_free = uint64_t{shm.f_bavail} * shm.f_frsize;
}

// libcuda.so.1 belongs to the driver; it loads or the reason is told.
void read_cuda(Process* process) {
  void* library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    process->cuda_problem = dlerror();
    return;
  }
  auto* version = reinterpret_cast<int (*)(int*)>(dlsym(library, "cuDriverGetVersion"));
  int number = 0;
  if (version && version(&number) == 0) process->cuda = number;
  if (process->cuda == 0) process->cuda_problem = "libcuda.so.1: cuDriverGetVersion fails";
}  // never closed: libraries of drivers do not survive it

void read_plugins(Process* process) {
  for (const tutti::PluginRecord& plugin : tutti::list_plugins()) {
    if (plugin.loaded) {
      process->plugins[plugin.id] = plugin.version;
    } else {
      (plugin.required ? process->required_refused : process->refused_plugins)
          .push_back(plugin.path + ": " + plugin.reason);
    }
  }
  for (const info::Network& network : info::find_networks())
    for (const info::Rail& rail : network.rails)
      if (network.transport == "tcp" && rail.chosen && rail.medium != "loopback")
        process->tcp_interfaces[rail.name] = rail.mtu;
  for (const tutti_transport* transport : tutti::list_transports()) {
    const std::string why = info::why_left_out(*transport);
    if (why.empty())
      process->transports.emplace_back(transport->name);
    else
      process->idle_transports[transport->name] = why;
  }
}

}  // namespace

Process this_process() {
  Process process;
  const info::HostFacts host = info::host_facts();
  process.host = host.name;
  process.host_key = host.key;
  process.processor = host.processor;
  process.memory_bytes = host.memory_bytes;
  utsname kernel{};
  if (uname(&kernel) == 0) process.kernel = kernel.release;
  cpu_set_t usable;
  CPU_ZERO(&usable);
  if (sched_getaffinity(0, sizeof usable, &usable) == 0)
    for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &usable)) process.cpus.push_back(cpu);
  read_limits(&process);
  read_cuda(&process);
  read_plugins(&process);
  for (const auto& [name, value] : info::settings()) process.settings[name] = value;
  process.unknown_settings = tutti::list_unknown_settings();
  return process;
}

}  // namespace doctor
