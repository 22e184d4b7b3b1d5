// SPDX-License-Identifier: Apache-2.0
//
// The facts of one rank and its host: read on every rank, judged on rank 0. Ranks send them as JSON.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tree.hpp"

namespace doctor {

constexpr int64_t no_limit = Tree::no_limit;

// Facts from system calls, and from Tutti about its plugins. Tests make them up.
struct Process {
  std::string host, host_key, processor, kernel;
  uint64_t memory_bytes = 0;
  std::vector<uint32_t> cpus;  // that it may run on
  int64_t locked_memory = no_limit, open_files = no_limit, most_open_files = no_limit;
  bool may_lock_memory = false;  // CAP_IPC_LOCK: the limit does not count
  bool has_shm = true;           // /dev/shm is there
  uint64_t shm_bytes = 0, shm_free = 0;
  int32_t cuda = 0;  // the version that libcuda serves, 12040; 0: cuda_problem says why there is none
  std::string cuda_problem;
  std::map<std::string, std::string> settings;  // TUTTI_*, secrets hidden
  std::vector<std::string> unknown_settings;    // sentences
  std::map<std::string, std::string> plugins;   // id: version
  std::vector<std::string> transports;                 // that can serve here
  std::map<std::string, std::string> idle_transports;  // the other ones that are loaded: why they cannot
  // That the transport tcp uses, without loopback, and their MTUs (0: unknown). Empty: unknown.
  std::map<std::string, uint32_t> tcp_interfaces;
  std::vector<std::string> refused_plugins;   // "PATH: reason"
  std::vector<std::string> required_refused;  // those of them that TUTTI_PLUGIN_PATH names
};

struct Cgroup {
  double cpus = 0;                                // quota; 0: none
  int64_t memory = no_limit, memory_used = 0;     // bytes; pages that can be dropped are not counted
  int64_t tasks = no_limit, tasks_used = 0;       // processes and threads
  std::string cpu_file, memory_file, tasks_file;  // where the limit was found
};

struct Interface {
  std::string name, state;    // "up", "down", "unknown"
  int64_t mtu = 0, mbit = 0;  // 0: unknown
  bool used = false;          // by the transport tcp to reach other hosts
};

struct RdmaPort {
  std::string adapter, state, rate, link_layer;
  uint32_t port = 0, gids = 0;
  bool roce_v2 = false;  // some GID has that type
};

struct NumaNode {
  uint32_t number = 0;
  std::vector<uint32_t> cpus;
};

struct Facts {
  Process process;
  uint32_t rank = 0, nranks = 1, host_number = 0;
  std::vector<uint32_t> online;
  Cgroup cgroup;
  int64_t ptrace_scope = 0, numa_balancing = 0;
  std::string huge_pages;  // "always", "madvise", "never"; "": unknown
  std::vector<NumaNode> nodes;
  std::vector<Interface> interfaces;
  std::vector<RdmaPort> rdma;
  bool verbs_devices = false;       // /dev/infiniband/uverbs*
  uint32_t nvidia_adapters = 0;     // on the PCI bus
  std::string nvidia_driver;        // version of the loaded kernel driver
  std::vector<std::string> faults;  // files that were not understood
};

// Reads the files below `root`.
Facts read_facts(const std::filesystem::path& root, Process process);
// The facts of the calling process.
Process this_process();

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Process, host, host_key, processor, kernel, memory_bytes, cpus, locked_memory,
                                   open_files, most_open_files, may_lock_memory, has_shm, shm_bytes, shm_free, cuda,
                                   cuda_problem, settings, unknown_settings, plugins, transports, idle_transports,
                                   tcp_interfaces, refused_plugins, required_refused)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Cgroup, cpus, memory, memory_used, tasks, tasks_used, cpu_file, memory_file,
                                   tasks_file)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Interface, name, state, mtu, mbit, used)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(RdmaPort, adapter, state, rate, link_layer, port, gids, roce_v2)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(NumaNode, number, cpus)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Facts, process, rank, nranks, host_number, online, cgroup, ptrace_scope,
                                   numa_balancing, huge_pages, nodes, interfaces, rdma, verbs_devices, nvidia_adapters,
                                   nvidia_driver, faults)

}  // namespace doctor
