// SPDX-License-Identifier: Apache-2.0
//
// The transport "adapter": tcp with the abilities of a network adapter that registers memory of the simulated device.
// It maps the descriptor and moves bytes between that mapping and the network; the device's own addresses it never
// touches. With needs_flush what it receives lands elsewhere and reaches the device by flush alone.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace tutti::test::adapter {

struct Settings {
  bool registers = true;  // memory of the device
  bool needs_flush = false;
  bool flush_fails = false;
};
inline Settings settings;

// Counters of what has passed. The endpoint's thread counts; tests read meanwhile.
struct Counters {
  std::atomic<uint64_t> device_bytes{0};        // of transfers from and into registered device memory
  std::atomic<uint64_t> host_region_bytes{0};   // ... host memory
  std::atomic<uint64_t> unregistered_bytes{0};  // ... neither
  std::atomic<uint64_t> flushes{0};
  std::atomic<uint64_t> regions{0};  // registered now
};
inline Counters counters;

namespace detail {

struct Region {
  std::byte* base;
  uint64_t bytes;
  std::byte* mapped = nullptr;  // of device memory
  uint64_t mapped_bytes = 0;
  uint64_t offset = 0;
};

// A receive that has not been flushed.
struct Landing {
  std::byte* to;  // in the mapping
  std::vector<std::byte> bytes;
};

inline const tutti_host* host = nullptr;
inline const tutti_transport* tcp = nullptr;
inline std::mutex mutex;
inline std::map<std::pair<tutti_link*, const void*>, std::unique_ptr<Landing>> landings;
inline std::set<std::pair<tutti_link*, const void*>> flushing;

inline tutti_status fail(tutti_status status, const char* text) {
  host->set_error(host->self, status, text);
  return status;
}

inline tutti_status query(tutti_domain* domain, tutti_transport_caps* caps) {
  const tutti_status status = tcp->query(domain, caps);
  if (status < 0) return status;
  caps->memory_kinds |= uint64_t{1} << TUTTI_MEMORY_SIMULATED;
  caps->latency_ns = caps->latency_ns / 2 + 1;  // rather than tcp
  if (settings.needs_flush) caps->flags |= TUTTI_TRANSPORT_NEEDS_FLUSH;
  return TUTTI_OK;
}

inline tutti_status register_memory(tutti_domain*, const tutti_memory* memory, tutti_region** region) {
  auto made = std::make_unique<Region>(Region{static_cast<std::byte*>(memory->address), memory->bytes});
  if (memory->kind != TUTTI_MEMORY_HOST) {
    if (!settings.registers) return fail(TUTTI_NOT_SUPPORTED, "adapter: this port registers no memory of devices");
    made->offset = memory->fd_offset;
    made->mapped_bytes = memory->fd_offset + memory->bytes;
    void* mapped = mmap(nullptr, made->mapped_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory->fd, 0);
    if (mapped == MAP_FAILED) return fail(TUTTI_SYSTEM, "adapter: the descriptor cannot be mapped");
    made->mapped = static_cast<std::byte*>(mapped);
  }
  ++counters.regions;
  *region = reinterpret_cast<tutti_region*>(made.release());
  return TUTTI_OK;
}

inline tutti_status deregister_memory(tutti_domain*, tutti_region* region) {
  const std::unique_ptr<Region> gone(reinterpret_cast<Region*>(region));
  if (gone->mapped) {
    munmap(gone->mapped, gone->mapped_bytes);
    tutti_pointer still{};
    still.struct_size = sizeof still;
    for (const tutti::DeviceTables& tables : tutti::list_devices())
      EXPECT_NE(tables.memory->classify(tables.memory->self, gone->base, &still), TUTTI_INVALID_ARGUMENT)
          << "it was released before it was deregistered";
  }
  --counters.regions;
  return TUTTI_OK;
}

// Where an adapter finds memory of the device; nullptr: not in the region.
inline std::byte* find(const Region& region, const void* data, uint64_t bytes) {
  const auto at = static_cast<uint64_t>(static_cast<const std::byte*>(data) - region.base);
  return at <= region.bytes && bytes <= region.bytes - at ? region.mapped + region.offset + at : nullptr;
}

inline tutti_status post(tutti_endpoint* endpoint, const tutti_transfer* given) {
  tutti_transfer transfer = *given;
  const auto* region = reinterpret_cast<const Region*>(transfer.region);
  transfer.region = nullptr;
  std::unique_ptr<Landing> landing;
  if (region && region->mapped) {
    std::byte* place = find(*region, transfer.data, transfer.bytes);
    if (!place || transfer.flags & TUTTI_TRANSFER_INLINE)
      return fail(TUTTI_INVALID_ARGUMENT, "adapter: INLINE, or outside of its region");
    transfer.data = place;
    if (transfer.kind == TUTTI_TRANSFER_RECV && settings.needs_flush) {
      landing = std::make_unique<Landing>(Landing{place, std::vector<std::byte>(transfer.bytes)});
      transfer.data = landing->bytes.data();
    }
  }
  const tutti_status status = tcp->post(endpoint, &transfer);
  if (status != TUTTI_OK) return status;
  if (landing) {
    const std::lock_guard lock(mutex);
    landings[{transfer.link, given->data}] = std::move(landing);
  }
  auto& count = !region          ? counters.unregistered_bytes
                : region->mapped ? counters.device_bytes
                                 : counters.host_region_bytes;
  count += transfer.bytes;
  return TUTTI_OK;
}

// Takes two calls.
inline tutti_status flush(tutti_link* link, tutti_region* region, const void* data, uint64_t bytes) {
  const std::lock_guard lock(mutex);
  if (settings.flush_fails) return fail(TUTTI_SYSTEM, "adapter: the port is on fire");
  if (!find(*reinterpret_cast<Region*>(region), data, bytes))
    return fail(TUTTI_INVALID_ARGUMENT, "adapter: flush outside of the region");
  if (flushing.insert({link, data}).second) return TUTTI_AGAIN;
  flushing.erase({link, data});
  const auto end = static_cast<const std::byte*>(data) + bytes;
  for (auto next = landings.lower_bound({link, data}); next != landings.end();) {
    if (next->first.first != link || next->first.second >= end) break;
    std::memcpy(next->second->to, next->second->bytes.data(), next->second->bytes.size());
    next = landings.erase(next);
  }
  ++counters.flushes;
  return TUTTI_OK;
}

inline void close_endpoint(tutti_endpoint* endpoint) {
  tcp->close_endpoint(endpoint);
  const std::lock_guard lock(mutex);
  landings.clear();
  flushing.clear();
}

inline tutti_transport table;
inline const void* get_interface(const char* id, uint32_t index) {
  if (index || std::strcmp(id, TUTTI_TRANSPORT_ID) != 0) return nullptr;
  table = *tcp;
  table.name = "adapter";
  table.summary = "tcp that registers memory of the simulated device";
  table.query = query;
  table.register_memory = register_memory;
  table.deregister_memory = deregister_memory;
  table.post = post;
  table.flush = flush;
  table.close_endpoint = close_endpoint;
  return &table;
}

inline tutti_status init(const tutti_host* offered) {
  host = offered;
  return TUTTI_OK;
}

}  // namespace detail

// Makes the transport known to this process, before anything else.
inline void load() {
  static const tutti_plugin_info info{sizeof info, 0, "adapter", "1.0.0", "Tutti", "Apache-2.0", "for tests"};
  static const tutti_plugin_entry_table entry{sizeof entry, TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR,      0,
                                              &info,        detail::init,    detail::get_interface};
  std::string error;
  detail::tcp = tutti::find_transport("tcp", &error);
  ASSERT_NE(detail::tcp, nullptr) << error;
  ASSERT_EQ(tutti_plugin_register(&entry), TUTTI_OK);
}

}  // namespace tutti::test::adapter
