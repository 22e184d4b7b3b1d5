// SPDX-License-Identifier: Apache-2.0
#include "facts.hpp"

#include <fmt/format.h>

#include <algorithm>

#include "texts/texts.hpp"

namespace doctor {
namespace {

// The folders of this process's groups for one controller, innermost first, up to the mount. A container may see only
// the mount, at which its own group then is.
std::vector<std::string> groups(const Tree& tree, const std::string& controller, bool* second_version) {
  for (const std::string& line : tree.lines("proc/self/cgroup")) {
    const size_t one = line.find(':'), two = line.find(':', one + 1);
    if (one == line.npos || two == line.npos) continue;
    const std::string controllers = line.substr(one + 1, two - one - 1);
    std::string path = line.substr(two + 1);
    std::vector<std::string> mounts;
    if (("," + controllers + ",").find("," + controller + ",") != std::string::npos)
      mounts = {"sys/fs/cgroup/" + controllers, "sys/fs/cgroup/" + controller};
    else if (controllers.empty() && tree.has("sys/fs/cgroup/cgroup.controllers"))
      mounts = {"sys/fs/cgroup"};
    for (const std::string& mount : mounts) {
      if (!tree.has(mount)) continue;
      *second_version = controllers.empty();
      std::vector<std::string> folders;
      for (; path.size() > 1; path.erase(path.rfind('/')))
        if (tree.has(mount + path)) folders.push_back(mount + path + "/");
      folders.push_back(mount + "/");
      return folders;
    }
  }
  return {};
}

// Cores that the quota of one group allows; 0: no quota.
double quota(Tree& tree, const std::string& folder, bool second_version, std::string* file) {
  *file = folder + (second_version ? "cpu.max" : "cpu.cfs_quota_us");
  if (!second_version) {
    const int64_t allowed = tree.number(*file).value_or(-1),
                  period = tree.number(folder + "cpu.cfs_period_us").value_or(0);
    return allowed > 0 && period > 0 ? static_cast<double>(allowed) / static_cast<double>(period) : 0;
  }
  const std::string text = tree.text(*file);
  if (text.empty() || text.starts_with("max")) return 0;
  const size_t space = text.find(' ');
  const auto allowed = number_of(std::string_view(text).substr(0, space));
  const auto period = space == text.npos ? std::nullopt : number_of(std::string_view(text).substr(space + 1));
  if (allowed && period && *allowed > 0 && *period > 0)
    return static_cast<double>(*allowed) / static_cast<double>(*period);
  tree.fault(*file, text, "\"QUOTA PERIOD\" in microseconds, or \"max PERIOD\"");
  return 0;
}

// Bytes of the page cache that the kernel drops before it ends a process.
int64_t droppable(const Tree& tree, const std::string& folder) {
  for (const std::string& line : tree.lines(folder + "memory.stat"))
    for (const std::string_view key : {"inactive_file ", "total_inactive_file "})
      if (line.starts_with(key)) return number_of(std::string_view(line).substr(key.size())).value_or(0);
  return 0;
}

void read_cgroup(Tree& tree, Cgroup* out) {
  bool second = false;
  constexpr int64_t unlimited = INT64_MAX / 2;  // version 1 writes a number near the largest
  for (const std::string& folder : groups(tree, "cpu", &second)) {
    std::string file;
    const double cpus = quota(tree, folder, second, &file);
    if (cpus > 0 && (out->cpus == 0 || cpus < out->cpus)) out->cpus = cpus, out->cpu_file = file;
  }
  for (const std::string& folder : groups(tree, "memory", &second)) {
    const std::string file = folder + (second ? "memory.max" : "memory.limit_in_bytes");
    const auto limit = tree.number(file);
    if (!limit || *limit > unlimited || *limit >= out->memory) continue;
    const auto used = tree.number(folder + (second ? "memory.current" : "memory.usage_in_bytes"));
    out->memory = *limit, out->memory_file = file;
    out->memory_used = std::max<int64_t>(0, used.value_or(0) - droppable(tree, folder));
  }
  for (const std::string& folder : groups(tree, "pids", &second)) {
    const auto limit = tree.number(folder + "pids.max");
    if (!limit || *limit >= out->tasks) continue;
    out->tasks = *limit, out->tasks_file = folder + "pids.max";
    out->tasks_used = tree.number(folder + "pids.current").value_or(0);
  }
}

std::vector<Interface> read_interfaces(Tree& tree, const std::map<std::string, uint32_t>& used) {
  std::vector<Interface> interfaces;
  for (const std::string& name : tree.names("sys/class/net")) {
    const std::string folder = "sys/class/net/" + name + "/";
    constexpr int64_t loopback_type = 772;  // ARPHRD_LOOPBACK
    Interface interface { name, tree.text(folder + "operstate") };
    if (interface.state.empty() || tree.number(folder + "type") == loopback_type) continue;  // bonding_masters, lo
    interface.mtu = tree.number(folder + "mtu").value_or(0);
    interface.mbit = std::max<int64_t>(0, tree.number(folder + "speed").value_or(0));  // -1: unknown
    interface.used = used.empty() ? interface.state == "up" : used.contains(name);
    interfaces.push_back(interface);
  }
  return interfaces;
}

std::vector<RdmaPort> read_rdma(Tree& tree) {
  std::vector<RdmaPort> ports;
  const std::string root = "sys/class/infiniband/", zero = "0000:0000:0000:0000:0000:0000:0000:0000";
  for (const std::string& adapter : tree.names(root))
    for (const std::string& number : tree.names(root + adapter + "/ports")) {
      const std::string folder = root + adapter + "/ports/" + number + "/";
      RdmaPort port{adapter, tree.text(folder + "state"), tree.text(folder + "rate"), tree.text(folder + "link_layer")};
      port.port = static_cast<uint32_t>(number_of(number).value_or(0));
      if (const size_t colon = port.state.find(": "); colon != std::string::npos) {
        port.state.erase(0, colon + 2);  // "4: ACTIVE"
      } else {
        tree.fault(folder + "state", port.state, "a number and a word, like \"4: ACTIVE\"");
      }
      for (const std::string& index : tree.names(folder + "gids")) {
        const std::string gid = tree.text(folder + "gids/" + index);
        if (gid.empty() || gid == zero) continue;
        ++port.gids;
        port.roce_v2 |= tree.text(folder + "gid_attrs/types/" + index) == "RoCE v2";
      }
      ports.push_back(port);
    }
  return ports;
}

std::vector<NumaNode> read_nodes(Tree& tree) {
  std::vector<NumaNode> nodes;
  for (const std::string& name : tree.names("sys/devices/system/node"))
    if (const auto number = name.starts_with("node") ? number_of(std::string_view(name).substr(4)) : std::nullopt) {
      std::vector<uint32_t> cpus = tree.list("sys/devices/system/node/" + name + "/cpulist");
      if (!cpus.empty()) nodes.push_back({static_cast<uint32_t>(*number), std::move(cpus)});
    }
  return nodes;
}

// The word in brackets: "always [madvise] never".
std::string chosen(Tree& tree, const std::string& path) {
  const std::string text = tree.text(path);
  const size_t open = text.find('['), close = text.find(']', open);
  if (close != text.npos) return text.substr(open + 1, close - open - 1);
  if (!text.empty()) tree.fault(path, text, "words of which one is in [brackets]");
  return "";
}

// "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build": the first word like 570.86.15.
std::string nvidia_driver(Tree& tree) {
  const std::string path = "proc/driver/nvidia/version", text = tree.text(path);
  for (const std::string& word : texts::words_of(text))
    if (word.find('.') != word.npos && word.find_first_not_of("0123456789.") == word.npos) return word;
  if (!text.empty()) tree.fault(path, text, "a version like 570.86.15");
  return "";
}

uint32_t count_nvidia(const Tree& tree) {
  uint32_t count = 0;
  const std::string root = "sys/bus/pci/devices/", display = "0x03";
  for (const std::string& device : tree.names(root))
    count +=
        tree.text(root + device + "/vendor") == "0x10de" && tree.text(root + device + "/class").starts_with(display);
  return count;
}

}  // namespace

Facts read_facts(const std::filesystem::path& root, Process process) {
  Tree tree(root);
  Facts facts;
  facts.process = std::move(process);
  facts.online = tree.list("sys/devices/system/cpu/online");
  read_cgroup(tree, &facts.cgroup);
  facts.ptrace_scope = tree.number("proc/sys/kernel/yama/ptrace_scope").value_or(0);
  facts.numa_balancing = tree.number("proc/sys/kernel/numa_balancing").value_or(0);
  facts.huge_pages = chosen(tree, "sys/kernel/mm/transparent_hugepage/enabled");
  facts.nodes = read_nodes(tree);
  facts.interfaces = read_interfaces(tree, facts.process.tcp_interfaces);
  facts.rdma = read_rdma(tree);
  for (const std::string& name : tree.names("dev/infiniband")) facts.verbs_devices |= name.starts_with("uverbs");
  facts.nvidia_adapters = count_nvidia(tree);
  facts.nvidia_driver = nvidia_driver(tree);
  facts.faults = tree.faults();
  return facts;
}

}  // namespace doctor
