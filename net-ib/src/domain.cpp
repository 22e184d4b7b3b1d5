// SPDX-License-Identifier: Apache-2.0
#include "domain.hpp"

#include <algorithm>
#include <tutti/sdk/transport.hpp>

namespace tutti::ib {
namespace {

constexpr int kRegionAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
// Only placers read: the queue pairs of peers accept no reads.
constexpr int kDeviceAccess = kRegionAccess | IBV_ACCESS_REMOTE_READ;

Device open_device(const std::string& name) {
  int n = 0;
  const DeviceList list(ibv_get_device_list(&n));
  Device device;
  device.name = name;
  for (int i = 0; i < n; ++i)
    if (name == ibv_get_device_name(list.get()[i])) device.context.reset(ibv_open_device(list.get()[i]));
  if (!device.context) throw system_error(errno, "cannot open {}", name);
  set_non_blocking(device.context->async_fd, name + ": cannot make asynchronous events non-blocking");
  device.pd.reset(ibv_alloc_pd(device.context.get()));
  if (!device.pd) throw system_error(errno, "{}: cannot allocate a protection domain", name);
  return device;
}

}  // namespace

Domain::Domain(const tutti_domain_config& config) {
  settings_.prefer_near(config);
  std::vector<Port> ports;
  std::vector<size_t> order;
  look_around(settings_, &ports, &order);
  for (const Port& port : ports)
    sdk::log(TUTTI_LOG_INFO, port.name() + (port.chosen ? " is used: " : " is not used: ") + port.why);
  for (const size_t i : order) {
    uint32_t at = 0;
    while (at < devices_.size() && devices_[at].name != ports[i].device) ++at;
    if (at == devices_.size()) devices_.push_back(open_device(ports[i].device));
    device_of_.push_back(at);
    rails_.push_back(std::move(ports[i]));
  }
}

tutti_region* Domain::register_memory(const tutti_memory& memory) {
  const bool on_device = memory.kind != TUTTI_MEMORY_HOST;
  const auto refuse = [&](const std::string& why) {
    throw error(TUTTI_NOT_SUPPORTED, "net-ib cannot register device memory (kind {}): {}; stage it through host memory",
                memory.kind, why);
  };
  const auto takes_none = [](const Port& rail) { return !rail.no_dma_buf.empty(); };
  const auto lacking = std::find_if(rails_.begin(), rails_.end(), takes_none);
  const bool by_address = memory.kind == TUTTI_MEMORY_CUDA && settings_.peer_memory && (memory.fd < 0 || lacking != rails_.end());
  if (on_device && !by_address) {
    constexpr const char* otherwise = "; without dma-buf, CUDA's memory needs the kernel module nvidia-peermem";
    if (lacking != rails_.end())
      refuse(fmt::format("{} takes no dma-buf: {}{}", lacking->device, lacking->no_dma_buf, otherwise));
    if (memory.fd < 0) refuse(fmt::format("there is no dma-buf descriptor of it{}", otherwise));
  }
  if (!memory.address || memory.bytes == 0)
    throw error(TUTTI_INVALID_ARGUMENT, "net-ib: no memory to register: {} bytes at {}", memory.bytes, memory.address);
  auto region = std::make_unique<Region>();
  region->base = static_cast<char*>(memory.address);
  region->bytes = memory.bytes;
  region->on_device = on_device;
  // Completions are written in strict order, and flushes read: both come after the writes before them.
  const int relaxed = settings_.relaxed_ordering ? IBV_ACCESS_RELAXED_ORDERING : 0;
  const int access = (on_device ? kDeviceAccess : kRegionAccess) | relaxed;
  for (const Device& device : devices_)
    region->by_device.push_back(
        on_device && !by_address ? register_dma_buf(device.pd.get(), memory, access, device.name)
                                 : register_bytes(device.pd.get(), memory.address, memory.bytes, access, device.name));
  return sdk::to_handle<tutti_region>(region.release());
}

void Domain::deregister_memory(tutti_region* region) { delete &sdk::from_handle<Region>(region); }

}  // namespace tutti::ib
