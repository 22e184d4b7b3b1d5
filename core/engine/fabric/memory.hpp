// SPDX-License-Identifier: Apache-2.0
//
// Memory that transports can address directly: what tutti_mem_alloc made and tutti_mem_register named, kept once per
// process, and its registrations with each transport's domain.
#pragma once

#include <tutti/plugin/transport.h>

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "engine/fabric/devices.hpp"

namespace tutti::core {

// One transport's domain of this process and a device, or none; shared by the communicators that use the transport and
// are bound to that device, closed with the last.
class Domain {
 public:
  // The process's domain of a transport and a device, opened if need be.
  static std::shared_ptr<Domain> of(const tutti_transport* api, const DeviceMemory& device);
  Domain(const tutti_transport* api, const DeviceMemory& device);
  Domain(const Domain&) = delete;
  Domain& operator=(const Domain&) = delete;
  ~Domain();
  tutti_domain* handle() const { return handle_; }
  const tutti_transport* api() const { return api_; }
  // The registration of all host memory of the process, made on first use; nullptr: the transport has none. [any
  // thread]
  tutti_region* all_memory();

 private:
  const tutti_transport* api_;
  tutti_domain* handle_ = nullptr;
  std::once_flag asked_for_all_;
  tutti_region* all_ = nullptr;
};

// A registered range and its region in one domain.
struct Registration {
  tutti_region* region = nullptr;
  uint64_t offset = 0;  // of the asked address in the region
};

// Process-wide table of directly addressable memory. Every function may be called by any thread. The lock is not held
// while a transport registers or deregisters, which takes milliseconds for a large range. The region is marked instead:
// only threads that need it wait.
class Memory {
  // The table at one moment, by address.
  struct SnapshotEntry {
    std::byte* first = nullptr;
    uint64_t bytes = 0;
    std::vector<std::pair<const Domain*, tutti_region*>> regions;
  };
  using Snapshot = std::vector<SnapshotEntry>;

 public:
  static Memory& process();
  // Memory of our own making, zeroed: a memory file that other processes can map, or where the system refuses one,
  // pages that the transports copy or register as they do any other memory.
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

  // find() for a thread that asks again and again: it takes the lock only when memory has come or gone since, or when a
  // registration has to be made. One thread at a time.
  class Lookup {
   public:
    Registration find(Domain& domain, const void* address, uint64_t bytes);
    // Is it registered memory, and so the host's?
    bool holds(const void* address, uint64_t bytes) { return range_of(address, bytes) != nullptr; }

   private:
    // nullptr: it is not registered.
    const SnapshotEntry* range_of(const void* address, uint64_t bytes);
    uint64_t generation_ = 0;
    std::shared_ptr<const Snapshot> known_;
  };

 private:
  struct Region {
    tutti_region* region = nullptr;
    bool busy = false;  // a thread registers or deregisters it without the lock, and alone may change it
  };
  struct Range {
    uint64_t bytes = 0;
    int fd = -1;  // -1: there is no file
    uint64_t fd_offset = 0;
    bool ours = false;
    bool leaves = false;  // a thread removes it: nobody finds it any more
    std::map<Domain*, Region> regions;
  };
  void erase(void* address, bool ours, const char* what);
  // The mutex is held.
  void changed();
  const std::shared_ptr<const Snapshot>& snapshot();

  std::mutex mutex_;
  std::condition_variable settled_;  // a region is not busy any more
  std::map<std::byte*, Range> ranges_;
  std::atomic<uint64_t> generation_{1};       // raised with every change
  std::shared_ptr<const Snapshot> snapshot_;  // nullptr: not made since the last change
};

}  // namespace tutti::core
