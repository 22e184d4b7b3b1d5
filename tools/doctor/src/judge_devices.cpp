// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "judge.hpp"

namespace doctor {
namespace {

constexpr int64_t gigabit = 1000;

bool has_transport(const Facts& f, const std::string& name) {
  const std::vector<std::string>& able = f.process.transports;
  return std::find(able.begin(), able.end(), name) != able.end() || f.process.idle_transports.contains(name);
}

void judge_interfaces(const Facts& f, Findings& out) {
  bool reaches_out = false;
  for (const Interface& i : f.interfaces) {
    if (!i.used) continue;
    reaches_out = true;
    if (i.mbit > 0 && i.mbit < gigabit)
      out.push_back(
          {Severity::warning, "slow_interface", fmt::format("{} runs at {} Mbit/s", i.name, i.mbit),
           fmt::format("at most {:.0f} MB/s over it; often a bad cable or port", static_cast<double>(i.mbit) / 8),
           fmt::format("ethtool {0}; ethtool -s {0} autoneg on; or TUTTI_TCP_INTERFACE=^={0}", i.name)});
    if (i.mbit >= 10 * gigabit && i.mtu > 0 && i.mtu <= 1500)
      out.push_back({Severity::note, "small_mtu",
                     fmt::format("{} has MTU {} at {} Gbit/s", i.name, i.mtu, i.mbit / gigabit),
                     "more packets and more processor time per byte than with jumbo frames",
                     fmt::format("ip link set {} mtu 9000   # where the switches and all hosts have it too", i.name)});
  }
  if (!reaches_out)
    out.push_back({Severity::warning, "no_interface", "no network interface but loopback is up and chosen",
                   "ranks on other hosts cannot be reached",
                   "ip link set NAME up; docker run --network host; TUTTI_TCP_INTERFACE=NAME"});
}

void judge_rdma(const Facts& f, Findings& out) {
  bool active = false;
  for (const RdmaPort& p : f.rdma) {
    const std::string name = fmt::format("{}:{}", p.adapter, p.port);
    active |= p.state == "ACTIVE";
    if (p.state != "ACTIVE")
      out.push_back({Severity::warning, "rdma_port",
                     fmt::format("port {} is {}", name, p.state.empty() ? "unknown" : p.state),
                     "it carries nothing; ranks use other ports or TCP",
                     p.link_layer == "Ethernet"
                         ? fmt::format("rdma link show {}; ip link set NETDEV up", p.adapter)
                         : fmt::format("ibstat {}; is the cable in and a subnet manager running?", p.adapter)});
    else if (p.link_layer == "Ethernet" && !p.roce_v2)
      out.push_back({Severity::warning, "rdma_gid",
                     fmt::format("port {} has {} GIDs, none of type RoCE v2", name, p.gids),
                     "RoCE packets cannot be routed, or no connection can be made",
                     "give its network interface an address: ip addr add ADDRESS/LENGTH dev NETDEV"});
    else if (p.gids == 0)
      out.push_back({Severity::warning, "rdma_gid", fmt::format("port {} has no GID", name),
                     "no connection can be made over it",
                     fmt::format("ibv_devinfo -v -d {}; is the subnet manager running?", p.adapter)});
  }
  if (!active) return;
  if (!f.verbs_devices)
    out.push_back({Severity::warning, "rdma_device", "an RDMA port is active, but there is no /dev/infiniband/uverbs*",
                   "the adapter cannot be used; bytes go over TCP",
                   "modprobe ib_uverbs; docker run --device=/dev/infiniband"});
  else if (!has_transport(f, "ib"))
    out.push_back({Severity::warning, "rdma_plugin", "an RDMA port is active, but no transport ib is loaded",
                   "bytes go over TCP: several times slower",
                   "install tutti's plugin net-ib (libibverbs); tutti-info shows why it is refused"});
  constexpr int64_t usable = 64 << 20;
  if (f.process.locked_memory != no_limit && !f.process.may_lock_memory)
    out.push_back({f.process.locked_memory < usable ? Severity::error : Severity::warning, "locked_memory",
                   fmt::format("this process may lock {}", bytes_text(static_cast<uint64_t>(f.process.locked_memory))),
                   "RDMA needs locked memory: registrations beyond it fail with \"Cannot allocate memory\"",
                   "ulimit -l unlimited; memlock in /etc/security/limits.conf (LimitMEMLOCK=infinity of the launcher's "
                   "service)"});
}

void judge_gpu(const Facts& f, Findings& out) {
  const bool driver = !f.nvidia_driver.empty();
  if (f.nvidia_adapters > 0 && !driver)
    out.push_back({Severity::warning, "gpu_driver",
                   fmt::format("{} NVIDIA adapters on the PCI bus, but no driver is loaded", f.nvidia_adapters),
                   "no device memory: GPUs cannot be used", "modprobe nvidia; nvidia-smi; dmesg | grep -i nvrm"});
  if (driver && f.process.cuda == 0)
    out.push_back(
        {Severity::error, "gpu_library",
         fmt::format("driver {} is loaded, but CUDA does not work: {}", f.nvidia_driver, f.process.cuda_problem),
         "calls on device memory fail",
         "docker run --gpus all (NVIDIA container toolkit); otherwise install libcuda1 of the driver's version"});
  if (driver && f.process.cuda > 0 && !f.process.plugins.contains("cuda"))
    out.push_back({Severity::warning, "gpu_plugin",
                   fmt::format("driver {} works, but the plugin cuda is not loaded", f.nvidia_driver),
                   "calls on device memory are refused",
                   "install tutti's plugin cuda-kernels; tutti-info shows why it is refused"});
}

void judge_software(const Facts& f, Findings& out) {
  for (const std::string& refused : f.process.required_refused)
    out.push_back({Severity::error, "plugin_refused", refused,
                   "TUTTI_PLUGIN_PATH names it, so no communicator can be made",
                   "build it against this Tutti's headers, or take it out of TUTTI_PLUGIN_PATH"});
  for (const std::string& refused : f.process.refused_plugins)
    out.push_back({Severity::warning, "plugin_refused", refused, "what it offers is missing",
                   "build it against this Tutti's headers, or remove it"});
  if (f.process.transports.empty() && f.process.idle_transports.empty())
    out.push_back({Severity::error, "no_transport", "no transport is loaded", "ranks cannot exchange a byte",
                   "export TUTTI_PLUGIN_PATH=FOLDER/lib/tutti; tutti-info lists what is found"});
  for (const std::string& sentence : f.process.unknown_settings)
    out.push_back(
        {Severity::warning, "unknown_setting", sentence, "it has no effect", "unset it, or correct its name"});
  for (const std::string& fault : f.faults)
    out.push_back({Severity::note, "unreadable", fault, "what it limits is not judged", ""});
}

}  // namespace

void judge_devices(const Facts& facts, Findings& out) {
  judge_interfaces(facts, out);
  judge_rdma(facts, out);
  judge_gpu(facts, out);
  judge_software(facts, out);
}

}  // namespace doctor
