// SPDX-License-Identifier: Apache-2.0
#include "stream/staging_slots.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <new>
#include <tutti/base/bits.hpp>
#include <tutti/base/file_descriptor.hpp>

#include "base/failure.hpp"
#include "base/graveyard.hpp"
#include "engine/fabric/devices.hpp"
#include "registry/host.hpp"

namespace tutti::core {

StagingSlots::StagingSlots(const DeviceTables& tables, uint32_t device, const Port& port, uint64_t bytes, bool in_host)
    : tables_(tables), domain_(port.domain), bytes_(bytes) {
  if (!in_host) why_in_host_ = try_device(device, port);
  if (on_device()) return;
  host_memory_ = std::make_unique<MappedMemory>(tables_, bytes_);
  posted_ = host_memory_->host();
  seen_ = host_memory_->device();
  if (!port.view) register_host();  // else processors read and write them
}

StagingSlots::~StagingSlots() {
  if (region_ && domain_->api()->deregister_memory(domain_->handle(), region_) < 0) {
    try {
      log(TUTTI_LOG_WARN, domain_->api()->name,
          fmt::format("memory of {} bytes cannot be deregistered, and is kept until the process ends: {}", bytes_,
                      take_plugin_error()));
    } catch (const std::bad_alloc&) {
    }
    keep_for_ever(std::move(host_memory_), "a transport has it registered");
  } else if (device_memory_) {
    tables_.memory->release(tables_.memory->self, device_memory_);
  }
}

// "": they are device memory now; else why they cannot be.
std::string StagingSlots::try_device(uint32_t device, const Port& port) {
  const tutti_device* memory = tables_.memory;
  const tutti_transport* transport = port.api;
  const uint32_t kind = caps_of(tables_).memory_kind;
  if (!has_bit(port.caps.memory_kinds, kind) || !TUTTI_HAS(tutti_transport, transport, register_memory))
    return fmt::format("{} takes no memory of device {}", transport->name, memory->name);
  if (port.view) return fmt::format("{} reads and writes messages with the processor (view/1)", transport->name);
  if (port.caps.flags & TUTTI_TRANSPORT_NEEDS_FLUSH && !TUTTI_HAS(tutti_transport, transport, flush))
    return fmt::format("{} needs a flush after receiving and offers none", transport->name);
  if (!TUTTI_HAS(tutti_device, memory, export_dmabuf)) return fmt::format("device {} makes no dma-bufs", memory->name);
  if (memory->allocate(memory->self, device, bytes_, &device_memory_) < 0) {
    device_memory_ = nullptr;
    return take_plugin_error();
  }
  const std::string why = register_device(port, kind);
  if (why.empty()) {
    posted_ = seen_ = static_cast<std::byte*>(device_memory_);
  } else {
    memory->release(memory->self, device_memory_);
    device_memory_ = nullptr;
  }
  return why;
}

std::string StagingSlots::register_device(const Port& port, uint32_t kind) {
  int32_t fd = -1;
  tutti_memory memory{sizeof memory, kind, device_memory_, bytes_, -1, 0, 0};
  const tutti_device* device = tables_.memory;
  if (device->export_dmabuf(device->self, device_memory_, bytes_, &fd, &memory.fd_offset) < 0)
    return take_plugin_error();
  const FileDescriptor dmabuf(fd);
  memory.fd = fd;
  if (port.api->register_memory(domain_->handle(), &memory, &region_) < 0) {
    region_ = nullptr;
    return take_plugin_error();
  }
  return {};
}

void StagingSlots::register_host() {
  const tutti_transport* transport = domain_->api();
  if (!TUTTI_HAS(tutti_transport, transport, register_memory)) return;
  const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, posted_, bytes_, -1, 0, 0};
  if (transport->register_memory(domain_->handle(), &memory, &region_) >= 0) return;
  region_ = nullptr;  // it copies
  take_plugin_error();
}

}  // namespace tutti::core
