// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "judge.hpp"

namespace doctor {
namespace {

constexpr int64_t MiB = 1 << 20;

void judge_quota(const Facts& f, Findings& out) {
  const size_t usable = f.process.cpus.size();
  if (f.cgroup.cpus > 0 && f.cgroup.cpus < static_cast<double>(usable))
    out.push_back(
        {Severity::warning, "cpu_quota",
         fmt::format("the cgroup may use {:g} cores, {} are visible (/{})", f.cgroup.cpus, usable, f.cgroup.cpu_file),
         "ranks that poll use the quota up, then all of them stand still for the rest of the period (100 ms)",
         "docker update --cpus N CONTAINER; systemctl set-property UNIT CPUQuota=; or bind ranks to fewer cores"});
}

void judge_memory(const Facts& f, Findings& out) {
  constexpr int64_t little_memory = 512 * MiB, few_tasks = 64;
  const Cgroup& c = f.cgroup;
  if (c.memory != no_limit && c.memory - c.memory_used < little_memory)
    out.push_back({Severity::warning,
                   "memory_limit",
                   fmt::format("the cgroup has {} left of {} (/{})",
                               bytes_text(static_cast<uint64_t>(std::max<int64_t>(0, c.memory - c.memory_used))),
                               bytes_text(static_cast<uint64_t>(c.memory)), c.memory_file),
                   "shared memory between ranks counts as well; at the limit the kernel kills a rank (SIGKILL)",
                   "docker update --memory SIZE CONTAINER; systemctl set-property UNIT MemoryMax=SIZE; srun --mem=SIZE",
                   {},
                   c.memory_file});
  if (c.tasks != no_limit && c.tasks - c.tasks_used < few_tasks)
    out.push_back({c.tasks - c.tasks_used < 4 ? Severity::error : Severity::warning,
                   "tasks_limit",
                   fmt::format("{} of {} processes and threads are in use (/{})", c.tasks_used, c.tasks, c.tasks_file),
                   "ranks and their threads cannot be started: \"Resource temporarily unavailable\"",
                   "docker update --pids-limit 4096 CONTAINER; systemctl set-property UNIT TasksMax=4096",
                   {},
                   c.tasks_file});
  constexpr uint64_t small_shm = 64 * MiB;  // docker's default
  if (!f.process.has_shm || f.process.shm_free <= small_shm)
    out.push_back(
        {Severity::warning,
         "dev_shm",
         f.process.has_shm ? fmt::format("/dev/shm has {} free of {}", bytes_text(f.process.shm_free),
                                         bytes_text(f.process.shm_bytes))
                           : "there is no /dev/shm",
         "nothing for Tutti itself (its shared memory has no files); PyTorch's DataLoader, NCCL and MPI beside it "
         "end with SIGBUS",
         "mount -o remount,size=8G /dev/shm; docker run --shm-size=8g",
         {},
         "/dev/shm"});
}

// docs/reliability.md, "Many ranks": what a rank opens for its neighbours and for each link.
int64_t descriptors_needed(uint32_t nranks) {
  constexpr int64_t application = 32;
  return application + 8 + 4 * std::bit_width(nranks) + 2 * int64_t{nranks};
}

void judge_descriptors(const Facts& f, Findings& out) {
  constexpr int64_t comfortable = 256;
  const int64_t needed = descriptors_needed(f.nranks), limit = f.process.open_files;
  if (limit >= std::max(needed, comfortable)) return;
  out.push_back(
      {limit < needed ? Severity::error : Severity::warning, "open_files",
       fmt::format("this process may open {} files; with {} ranks it needs up to {}", limit, f.nranks, needed),
       "connections between ranks fail: \"Too many open files\"",
       f.process.most_open_files > limit && f.process.most_open_files >= needed
           ? "ulimit -n " + std::to_string(std::min<int64_t>(f.process.most_open_files, 65536))
           : "raise nofile in /etc/security/limits.conf (LimitNOFILE= of the launcher's service)"});
}

void judge_kernel(const Facts& f, Findings& out) {
  if (f.ptrace_scope > 0)
    out.push_back(
        {Severity::note, "ptrace",
         fmt::format("kernel.yama.ptrace_scope is {}: a rank may not read another's memory", f.ptrace_scope),
         "messages of ordinary memory between processes are copied twice: from 1 MiB up a broadcast or all_gather takes "
         "up to half longer",
         f.ptrace_scope < 3 ? "sysctl -w kernel.yama.ptrace_scope=0" : "restart: 3 cannot be changed while running"});
  if (f.huge_pages == "never")
    out.push_back({Severity::note, "huge_pages", "transparent huge pages are off",
                   "large buffers take 512 times as many page faults and TLB entries",
                   "echo madvise > /sys/kernel/mm/transparent_hugepage/enabled"});
  if (f.nodes.size() < 2) return;
  uint32_t touched = 0;
  for (const NumaNode& node : f.nodes)
    touched += std::find_first_of(node.cpus.begin(), node.cpus.end(), f.process.cpus.begin(), f.process.cpus.end()) !=
               node.cpus.end();
  if (touched > 1)
    out.push_back({Severity::note, "numa_binding",
                   fmt::format("this process may run on {} of {} NUMA nodes", touched, f.nodes.size()),
                   "its memory may lie on a node where it does not run: less bandwidth, more latency",
                   "numactl --cpunodebind=N --membind=N PROGRAM; srun --cpu-bind=cores; mpirun --bind-to numa"});
  if (f.numa_balancing > 0 && touched > 1)
    out.push_back({Severity::note, "numa_balancing", "kernel.numa_balancing is on",
                   "the kernel unmaps pages now and then to see who uses them: pauses of some 100 us",
                   "sysctl -w kernel.numa_balancing=0"});
}

}  // namespace

void judge_limits(const Facts& facts, Findings& out) {
  judge_quota(facts, out);
  judge_memory(facts, out);
  judge_descriptors(facts, out);
  judge_kernel(facts, out);
}

}  // namespace doctor
