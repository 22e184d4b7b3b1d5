// SPDX-License-Identifier: Apache-2.0
//
// Memory that transports can address directly: what tutti_mem_alloc made and tutti_mem_register named, kept once per
// process, and its registrations with each transport's domain.
#pragma once

#include <tutti/plugin/transport.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace tutti::core {

// One transport's domain of this process; shared by the communicators that use the transport, closed with the last.
class Domain {
 public:
  // The process's domain of a transport, opened if need be.
  static std::shared_ptr<Domain> of(const tutti_transport* api);
  explicit Domain(const tutti_transport* api);
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain();
  tutti_domain* handle() const { return handle_; }
  const tutti_transport* api() const { return api_; }

 private:
  const tutti_transport* api_;
  tutti_domain* handle_ = nullptr;
};

// A registered range and its region in one domain.
struct Registration {
  tutti_region* region = nullptr;
  uint64_t offset = 0;  // of the asked address in the region
};

// Process-wide table of directly addressable memory. Every function may be called by any thread.
class Memory {
 public:
  static Memory& process();
  // Memory of our own making (a memfd), zeroed.
  void* allocate(uint64_t bytes);
  void release(void* address);
  // The application's own mapping of fd.
  void add(void* address, uint64_t bytes, int fd, uint64_t fd_offset);
  void remove(void* address);
  // The registration of [address, address + bytes) with a domain, made on first use; region is nullptr where the memory
  // is not registered, or the transport does not take it.
  Registration find(Domain& domain, const void* address, uint64_t bytes);
  // Drops a domain's registrations.
  void forget(Domain& domain);

 private:
  struct Range {
    uint64_t bytes = 0;
    int fd = -1;
    uint64_t fd_offset = 0;
    bool ours = false;
    std::map<Domain*, tutti_region*> regions;
  };
  void erase(void* address, bool ours, const char* what);

  std::mutex mutex_;
  std::map<std::byte*, Range> ranges_;
};

}  // namespace tutti::core
