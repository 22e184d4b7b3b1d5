// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <deque>
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
  char* seen = nullptr;  // where streams find it
  enum class State { device, host, released } state = State::device;
};

std::mutex mutex;
uint64_t last_id = 0;

std::map<uintptr_t, Range>& ranges() {
  static auto* all = new std::map<uintptr_t, Range>();
  return *all;
}

// Released ranges, the oldest first, that are still reserved.
constexpr size_t most_released = 256;
std::deque<uintptr_t>& released() {
  static auto* all = new std::deque<uintptr_t>();
  return *all;
}

// The range that holds an address, or the end.
std::map<uintptr_t, Range>::iterator holding(uintptr_t address) {
  auto after = ranges().upper_bound(address);
  if (after == ranges().begin()) return ranges().end();
  --after;
  return address - after->first < after->second.bytes ? after : ranges().end();
}

bool is_private() {
  static const bool is = sdk::config_number("TUTTI_SIMULATED_PRIVATE", 0, 0, 1) == 1;
  return is;
}

// The same new pages twice, if they are private: for addresses, and for streams.
struct Pages {
  void* base = MAP_FAILED;
  void* seen = MAP_FAILED;
};
Pages map_pages(uint64_t bytes) {
  if (!is_private()) {
    void* both = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return {both, both};
  }
  Pages pages;
  const int file = memfd_create("tutti-simulated-device", MFD_CLOEXEC);
  if (file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0) {
    pages.base = mmap(nullptr, bytes, PROT_NONE, MAP_SHARED, file, 0);
    pages.seen = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  }
  const int why = errno;
  if (file >= 0) close(file);
  errno = why;
  return pages;
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
  const auto [base, seen] = map_pages(bytes);
  if (base == MAP_FAILED || seen == MAP_FAILED)
    throw sdk::system_error("simulated device: no memory of " + std::to_string(bytes) + " bytes", errno);
  const std::lock_guard lock(mutex);
  ranges()[reinterpret_cast<uintptr_t>(base)] = {bytes, ++last_id, device, static_cast<char*>(seen),
                                                 Range::State::device};
  return base;
}

void release(void* address) {
  if (!address) return;
  const std::lock_guard lock(mutex);
  const auto found = ranges().find(reinterpret_cast<uintptr_t>(address));
  if (found == ranges().end() || found->second.state != Range::State::device)
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: " + text(address) + " is not the start of an allocation");
  found->second.state = Range::State::released;
  for (void* pages : {address, static_cast<void*>(found->second.seen)})
    mmap(pages, found->second.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
  released().push_back(found->first);
  if (released().size() <= most_released) return;
  const auto oldest = ranges().find(released().front());
  released().pop_front();
  munmap(reinterpret_cast<void*>(oldest->first), oldest->second.bytes);
  if (oldest->second.seen != reinterpret_cast<char*>(oldest->first)) munmap(oldest->second.seen, oldest->second.bytes);
  ranges().erase(oldest);
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
  ranges()[reinterpret_cast<uintptr_t>(address)] = {bytes, ++last_id, 0, static_cast<char*>(address),
                                                    Range::State::host};
}

void unmap_host(void* address) {
  const std::lock_guard lock(mutex);
  const auto found = ranges().find(reinterpret_cast<uintptr_t>(address));
  if (found == ranges().end() || found->second.state != Range::State::host)
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: " + text(address) + " was not mapped");
  ranges().erase(found);
}

void* reach(const void* address, uint64_t bytes) {
  if (!bytes) return const_cast<void*>(address);
  const std::lock_guard lock(mutex);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto found = holding(begin);
  if (found == ranges().end() || found->second.state == Range::State::released ||
      begin + bytes > found->first + found->second.bytes)
    throw Error(TUTTI_INVALID_ARGUMENT, "simulated device: a stream may not touch the " + std::to_string(bytes) +
                                            " bytes at " + text(address) + ": they are host memory that is not mapped");
  return found->second.seen + (begin - found->first);
}

}  // namespace tutti::simulated
