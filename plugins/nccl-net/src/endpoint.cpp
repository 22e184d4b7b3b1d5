// SPDX-License-Identifier: Apache-2.0
#include "endpoint.hpp"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>

#include "departures.hpp"

namespace tutti::nccl {
namespace {

constexpr auto kLinger = std::chrono::seconds(2);

// The adapter that settings name or join, else the one with the device's PCI address in its path in /sys, else the
// first.
int choose(Network& network, const Settings& settings, const char* near) {
  const int n = network.devices();
  if (!settings.fused.empty()) return network.fuse(settings.fused);
  if (settings.device) {
    if (*settings.device >= n)
      throw sdk::error(TUTTI_INVALID_ARGUMENT, "TUTTI_NCCL_NET_DEVICE={}: {} has adapters 0 to {}", *settings.device,
                       network.says(), n - 1);
    return *settings.device;
  }
  // Adapters below the same bridge share the longest part of the path.
  for (int device = 0; near && device < n; ++device)
    if (network.adapter(device).pci_path.find(near) != std::string::npos) return device;
  return 0;
}

}  // namespace

// ---- The domain

Domain::Domain(const tutti_domain_config& config)
    : network(Network::load(settings.network, settings.version)),
      context(network.open(0, -1)),
      device(choose(network, settings, config.device_pci)),
      adapter(network.adapter(device)),
      fragment_bytes(std::min(settings.fragment_bytes, adapter.max_message)),
      eager_bytes(std::min(settings.eager_bytes, fragment_bytes - sizeof(Frame))),
      device_kind(config.device_kind),
      registrations(std::make_shared<Registrations>(network)) {}

tutti_region* Domain::register_memory(const tutti_memory& memory) {
  const bool is_device = memory.kind != TUTTI_MEMORY_HOST;
  if (!memory.address)
    throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: registers memory with an address and a size only", network.says());
  if (is_device && (memory.kind != device_kind || !has_device()))
    throw sdk::error(TUTTI_NOT_SUPPORTED, "{}: adapter {} does not reach memory of kind {}", network.says(), device,
                     memory.kind);
  auto region = std::make_unique<Region>();
  region->kind = memory.kind;
  region->address = static_cast<char*>(memory.address);
  region->bytes = memory.bytes;
  if (is_device && memory.fd >= 0 && adapter.pointers & kDmaBuf) {
    region->dma_buf = FileDescriptor(fcntl(memory.fd, F_DUPFD_CLOEXEC, 0));
    if (region->dma_buf.get() < 0) throw sdk::system_error(errno, "{}: a dma-buf cannot be kept", network.says());
    region->dma_buf_offset = memory.fd_offset;
  }
  return sdk::to_handle<tutti_region>(region.release());
}

void Domain::deregister_memory(tutti_region* handle) {
  Region& region = sdk::from_handle<Region>(handle);
  registrations->forget(region);
  delete &region;
}

// ---- The endpoint

Endpoint::Endpoint(Domain& domain, const tutti_endpoint_config& config)
    : NetworkEndpoint("nccl-net", config, UINT16_MAX, {domain.fragment_bytes, 0, kControlBytes}),
      domain_(domain),
      context_(domain.network.open(config.communicator_id,
                                   config.traffic_class ? static_cast<int>(config.traffic_class) : -1)),
      links_(nranks()),
      connector_(*this, config) {}

Link* Endpoint::reach(uint32_t peer) {
  if (links_[peer])
    links_[peer]->check_not_lost();
  else
    connector_.connect(peer);
  return links_[peer].get();
}

void Endpoint::check_region(const tutti_transfer& t) const {
  if (t.region && !sdk::from_handle<Region>(t.region).holds(t.data, t.bytes))
    throw refusal(t, TUTTI_INVALID_ARGUMENT, "the bytes do not lie in their region");
}

void Endpoint::flush() {
  for (const auto& link : links_)
    if (link) link->send();
}

void Endpoint::advance() {
  Departures::of_process().advance();
  connector_.advance();
  for (const auto& link : links_)
    if (link) link->advance();
}

Endpoint::~Endpoint() {
  try {
    connector_.stop();
    if (!is_aborted()) leave_in_order();
  } catch (const std::exception& e) {
    log(TUTTI_LOG_ERROR, "while closing: {}", e.what());
  }
  links_.clear();
  settle_departures();
}

void Endpoint::leave_in_order() {
  const auto deadline = std::chrono::steady_clock::now() + kLinger;
  std::vector<Link*> leaving;
  for (const auto& link : links_)
    if (link) leaving.push_back(link.get());
  for (;;) {
    std::erase_if(leaving, [](Link* link) { return link->leave(); });
    if (leaving.empty() || std::chrono::steady_clock::now() >= deadline) break;
    ::poll(nullptr, 0, 1);
  }
}

}  // namespace tutti::nccl
