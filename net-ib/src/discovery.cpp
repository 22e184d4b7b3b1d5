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
#include <tutti/sdk/text.hpp>

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

// sysfs knows speeds that do not fit into active_speed's 8 bits (XDR).
uint32_t megabits_of(const std::string& folder, const ibv_port_attr& attr) {
  std::string rate;
  if (std::getline(std::ifstream(folder + "/rate"), rate))
    if (const uint32_t megabits = megabits_of_rate(rate)) return megabits;
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
  std::string line;
  std::getline(std::ifstream(folder + "/numa_node"), line);
  std::string_view text = line;
  int node = -1;
  take_number(text, node);
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

// The facts that may change.
void fill(ibv_context* context, const ibv_port_attr& attr, Port& port) {
  port.infiniband = attr.link_layer == IBV_LINK_LAYER_INFINIBAND;
  port.needs_route = port.infiniband && (attr.flags & IBV_QPF_GRH_REQUIRED);
  port.lid = attr.lid;
  port.mtu = static_cast<uint8_t>(attr.active_mtu);
  port.up = attr.state == IBV_PORT_ACTIVE;
  port.state = port.up ? "active" : attr.state == IBV_PORT_DOWN ? "down" : ibv_port_state_str(attr.state);
  port.megabits = megabits_of(fmt::format("/sys/class/infiniband/{}/ports/{}", port.device, port.port), attr);
  port.gids = gids_of(context, port.port, port.infiniband);
}

constexpr uint32_t kAmazon = 0x1d0f;

std::string unfit_because(const ibv_device& device, const ibv_device_attr& attr, const ibv_port_attr& port) {
  constexpr const char* instead = "use TCP on the host's network interfaces instead (TUTTI_TRANSPORT=shm,tcp)";
  if (attr.vendor_id == kAmazon && port.link_layer == IBV_LINK_LAYER_UNSPECIFIED)
    return fmt::format("it is an EFA adapter, which has no reliable connected queue pairs; {}", instead);
  if (device.transport_type == IBV_TRANSPORT_IWARP)
    return fmt::format(
        "it speaks iWARP, which has no writes with immediate data; switch it to RoCE v2 (irdma: `devlink dev param set "
        "pci/... name enable_roce value true cmode driverinit`), or {}",
        instead);
  if (attr.max_srq <= 0) return fmt::format("its device has no shared receive queues; {}", instead);
  return "";
}

void add_ports(ibv_device* device, std::vector<Port>& ports) {
  const std::string name = ibv_get_device_name(device);
  const Context context(ibv_open_device(device));
  if (!context)
    throw error(TUTTI_NOT_SUPPORTED,
                "cannot open {} (are /dev/infiniband/uverbs* there and writable for this user?): {}", name,
                system_text(errno));
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
    p.unfit = unfit_because(*device, attr, port);
    p.numa = numa_of("/sys/class/infiniband/" + name + "/device");
    p.no_dma_buf = no_dma_buf;
    fill(context.get(), port, p);
    ports.push_back(std::move(p));
  }
}

// In the order of the verbs library. Throws sdk::Error when there is no verbs device or one cannot be asked.
std::vector<Port> find_ports() {
  // Before anything is registered. On kernels that copy registered pages at a fork (5.12) this does nothing; on older
  // ones a child that forks would otherwise share pages that an adapter writes to.
  static const int code = ibv_fork_init();
  if (code)
    sdk::log(TUTTI_LOG_WARN, "libibverbs cannot make fork() safe: " + system_text(code) +
                                 "; a process that forks may see other bytes than the adapter wrote");
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

void look_again(ibv_context* context, Port& port) {
  ibv_port_attr attr{};
  if (ibv_query_port(context, static_cast<uint8_t>(port.port), &attr) == 0) return fill(context, attr, port);
  port.up = false;
  port.state = "gone";
}

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
