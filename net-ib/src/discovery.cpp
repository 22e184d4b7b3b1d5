// SPDX-License-Identifier: Apache-2.0
//
// Discovery of ports, by libibverbs, sysfs and the network interfaces.
#include <sched.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <tutti/sdk/interfaces.hpp>

#include "port.hpp"
#include "verbs.hpp"

namespace tutti::ib {
namespace {

// Bits of the subnet of `gid`, from the interface that has this address; 64 (24 for IPv4) when none has it.
uint32_t prefix_of(const std::vector<sdk::InterfaceAddress>& addresses, const RawGid& gid) {
  for (const sdk::InterfaceAddress& a : addresses)
    if (a.is_ip && a.ip == gid && a.prefix) return a.prefix;
  return is_v4(gid) ? 24 : 64;
}

uint32_t megabits_of(const ibv_port_attr& attr) {
  static constexpr uint32_t per_lane[] = {2500, 5000, 10000, 10000, 14000, 25000, 50000, 100000, 200000};
  static constexpr uint32_t lanes[] = {1, 4, 8, 12, 2};
  const auto position = [](unsigned code) { return static_cast<size_t>(std::countr_zero(code)); };
  const size_t speed = position(attr.active_speed), width = position(attr.active_width);
  return (speed < std::size(per_lane) ? per_lane[speed] : 2500) * (width < std::size(lanes) ? lanes[width] : 1);
}

std::vector<Gid> gids_of(ibv_context* context, uint32_t port, bool infiniband) {
  std::vector<ibv_gid_entry> entries(256);
  const ssize_t n = ibv_query_gid_table(context, entries.data(), entries.size(), 0);
  const std::vector<sdk::InterfaceAddress> addresses = sdk::interface_addresses();
  std::vector<Gid> gids;
  for (ssize_t i = 0; i < n && gids.size() < kMaxGids; ++i) {
    const ibv_gid_entry& entry = entries[static_cast<size_t>(i)];
    if (entry.port_num != port) continue;
    Gid gid;
    std::memcpy(gid.raw.data(), entry.gid.raw, gid.raw.size());
    gid.index = entry.gid_index;
    gid.roce_v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
    char name[IF_NAMESIZE];
    if (entry.ndev_ifindex && if_indextoname(entry.ndev_ifindex, name)) gid.interface = name;
    gid.prefix = infiniband ? 64 : prefix_of(addresses, gid.raw);
    gids.push_back(std::move(gid));
  }
  return gids;
}

// `folder` is a device's in sysfs.
int numa_of(const std::string& folder) {
  int node = -1;
  std::ifstream(folder + "/numa_node") >> node;
  return node;
}

// The way from a PCI root complex down to a device: the PCI parts of its real path, as in
// /sys/devices/pci0000:16/0000:16:01.0/0000:17:00.0. Empty: not a PCI device.
std::vector<std::string> pci_way(const std::string& folder) {
  std::error_code ignored;
  std::vector<std::string> way;
  for (const auto& part : std::filesystem::canonical(folder, ignored))
    if (const std::string name = part; name.starts_with("pci") || (!way.empty() && name.find(':') != name.npos))
      way.push_back(name);
  return way;
}

void add_ports(ibv_device* device, std::vector<Port>& ports) {
  const std::string name = ibv_get_device_name(device);
  const Context context(ibv_open_device(device));
  if (!context)
    throw error(TUTTI_NOT_SUPPORTED,
                "cannot open {} (are /dev/infiniband/uverbs* there and writable for this user?): {}", name,
                in_words(errno));
  ibv_device_attr attr{};
  if (const int code = ibv_query_device(context.get(), &attr)) throw system_error(code, "cannot query {}", name);
  const std::string no_dma_buf = lacks_dma_buf(context.get());
  for (uint8_t number = 1; number <= attr.phys_port_cnt; ++number) {
    ibv_port_attr port{};
    if (const int code = ibv_query_port(context.get(), number, &port))
      throw system_error(code, "cannot query port {} of {}", number, name);
    Port p;
    p.device = name;
    p.port = number;
    p.infiniband = port.link_layer == IBV_LINK_LAYER_INFINIBAND;
    p.lid = port.lid;
    p.mtu = static_cast<uint8_t>(port.active_mtu);
    p.up = port.state == IBV_PORT_ACTIVE;
    p.state = p.up ? "active" : port.state == IBV_PORT_DOWN ? "down" : ibv_port_state_str(port.state);
    p.megabits = megabits_of(port);
    p.numa = numa_of("/sys/class/infiniband/" + name + "/device");
    p.no_dma_buf = no_dma_buf;
    p.gids = gids_of(context.get(), number, p.infiniband);
    ports.push_back(std::move(p));
  }
}

// In the order of the verbs library. Throws sdk::Error when there is no verbs device or one cannot be asked.
std::vector<Port> find_ports() {
  int n = 0;
  const DeviceList list(ibv_get_device_list(&n));
  if (!list || n == 0)
    throw error(TUTTI_NOT_SUPPORTED,
                "this host has no verbs device: /sys/class/infiniband is empty (is the adapter's kernel module "
                "loaded? in a container, is /dev/infiniband passed in?)");
  std::vector<Port> ports;
  for (int i = 0; i < n; ++i) add_ports(list.get()[i], ports);
  return ports;
}

}  // namespace

int find_nearness(std::vector<Port>& ports, const std::string& near, const std::string& sysfs) {
  const std::string folder = sysfs + "/bus/pci/devices/" + near;
  const std::vector<std::string> there = pci_way(folder);
  if (there.empty())
    throw error(TUTTI_INVALID_ARGUMENT,
                "{} is no PCI device of this host (there is no {}); expected an address as in 0000:17:00.0", near,
                folder);
  for (Port& port : ports) {
    const std::vector<std::string> here = pci_way(sysfs + "/class/infiniband/" + port.device + "/device");
    const auto parts = std::mismatch(here.begin(), here.end(), there.begin(), there.end());
    port.shared_hops = static_cast<uint32_t>(parts.first - here.begin());
  }
  return numa_of(folder);
}

void look_around(Settings& settings, std::vector<Port>* ports, std::vector<size_t>* order) {
  *ports = find_ports();
  unsigned cpu = 0, node = 0;
  int numa = getcpu(&cpu, &node) == 0 ? static_cast<int>(node) : -1;
  if (!settings.near.empty()) try {
      numa = find_nearness(*ports, settings.near);
    } catch (const sdk::Error& why) {
      const std::string text = settings.near_is + why.what();
      if (settings.near_is == kNearIsUsers) throw sdk::Error(why.status(), text);
      sdk::log(TUTTI_LOG_WARN, text + "; rails near this thread are used");
      settings.near.clear();
    }
  choose_ports(*ports, settings, numa, order);
}

}  // namespace tutti::ib
