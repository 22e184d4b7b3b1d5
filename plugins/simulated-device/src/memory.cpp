// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <sys/mman.h>

#include <cerrno>
#include <map>
#include <mutex>
#include <string>
#include <tutti/sdk/plugin.hpp>

namespace tutti::simulated {
namespace {

using sdk::Error;

struct Range {
  uint64_t bytes = 0;
  uint64_t id = 0;
  uint32_t device = 0;
  enum class State { device, host, released } state = State::device;
};

std::mutex mutex;
uint64_t last_id = 0;

std::map<uintptr_t, Range>& ranges() {
  static auto* all = new std::map<uintptr_t, Range>();
  return *all;
}

// The range that holds an address, or the end.
std::map<uintptr_t, Range>::iterator holding(uintptr_t address) {
  auto after = ranges().upper_bound(address);
  if (after == ranges().begin()) return ranges().end();
  --after;
  return address - after->first < after->second.bytes ? after : ranges().end();
}

std::string text(const void* address) { return std::to_string(reinterpret_cast<uintptr_t>(address)); }

}  // namespace

uint32_t device_count() {
  static const auto count = static_cast<uint32_t>(sdk::config_number("TUTTI_SIMULATED_DEVICES", 2, 1, 64));
  return count;
}

void check_device(uint32_t device) {
  if (device >= device_count())
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device " + std::to_string(device) + " does not exist: there are " +
                                            std::to_string(device_count()));
}

void* allocate(uint32_t device, uint64_t bytes) {
  check_device(device);
  if (!bytes) bytes = 1;
  void* base = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (base == MAP_FAILED)
    throw sdk::system_error("simulated device: no memory of " + std::to_string(bytes) + " bytes", errno);
  const std::lock_guard lock(mutex);
  ranges()[reinterpret_cast<uintptr_t>(base)] = {bytes, ++last_id, device, Range::State::device};
  return base;
}

void release(void* address) {
  if (!address) return;
  const std::lock_guard lock(mutex);
  const auto found = ranges().find(reinterpret_cast<uintptr_t>(address));
  if (found == ranges().end() || found->second.state != Range::State::device)
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: " + text(address) + " is not the start of an allocation");
  found->second.state = Range::State::released;
  mprotect(address, found->second.bytes, PROT_NONE);
  madvise(address, found->second.bytes, MADV_DONTNEED);
}

void classify(const void* address, tutti_pointer& pointer) {
  const std::lock_guard lock(mutex);
  const auto found = holding(reinterpret_cast<uintptr_t>(address));
  if (found == ranges().end() || found->second.state == Range::State::host) {
    pointer.kind = TUTTI_MEMORY_HOST;
    return;
  }
  if (found->second.state == Range::State::released)
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: the memory at " + text(address) + " has been released");
  pointer.kind = TUTTI_MEMORY_SIMULATED;
  pointer.device = found->second.device;
  pointer.base = reinterpret_cast<void*>(found->first);
  pointer.bytes = found->second.bytes;
  pointer.buffer_id = found->second.id;
}

void map_host(void* address, uint64_t bytes) {
  const std::lock_guard lock(mutex);
  ranges()[reinterpret_cast<uintptr_t>(address)] = {bytes, ++last_id, 0, Range::State::host};
}

void unmap_host(void* address) {
  const std::lock_guard lock(mutex);
  const auto found = ranges().find(reinterpret_cast<uintptr_t>(address));
  if (found == ranges().end() || found->second.state != Range::State::host)
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: " + text(address) + " was not mapped");
  ranges().erase(found);
}

void check_reachable(const void* address, uint64_t bytes) {
  if (!bytes) return;
  const std::lock_guard lock(mutex);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto found = holding(begin);
  if (found == ranges().end() || found->second.state == Range::State::released ||
      begin + bytes > found->first + found->second.bytes)
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: a stream may not touch the " + std::to_string(bytes) +
                                            " bytes at " + text(address) + ": they are host memory that is not mapped");
}

}  // namespace tutti::simulated
