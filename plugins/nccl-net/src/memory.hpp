// SPDX-License-Identifier: Apache-2.0
//
// Memory that the network is told of. NCCL's plugins register memory for one comm at a time; Tutti registers it once
// for a domain. So a region is registered for a comm when a message first needs it there.
#pragma once

#include <tutti/plugin/transport.h>

#include <map>
#include <mutex>
#include <tutti/sdk/file_descriptor.hpp>
#include <utility>

#include "network.hpp"

namespace tutti::nccl {

struct Region {
  uint32_t kind = TUTTI_MEMORY_HOST;
  char* address = nullptr;
  uint64_t bytes = 0;
  FileDescriptor dma_buf{};  // where the memory is one
  uint64_t dma_buf_offset = 0;

  bool is_device() const { return kind != TUTTI_MEMORY_HOST; }
  bool holds(const void* data, uint64_t n) const {
    const auto* begin = static_cast<const char*>(data);
    return begin >= address && n <= bytes && static_cast<uint64_t>(begin - address) <= bytes - n;
  }
};

// [any thread]
class Registrations {
 public:
  explicit Registrations(Network& network) : network_(network) {}
  Registrations(const Registrations&) = delete;
  Registrations& operator=(const Registrations&) = delete;

  // The plugin's handle of `region` for `comm`. Throws Error.
  void* handle(const Region& region, void* comm);
  void forget(const Region& region);
  // Before a comm is closed.
  void forget_comm(void* comm);

 private:
  Network& network_;
  std::mutex mutex_;
  std::map<std::pair<const Region*, void*>, void*> handles_;
};

}  // namespace tutti::nccl
