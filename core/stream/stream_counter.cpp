// SPDX-License-Identifier: Apache-2.0
#include "stream/stream_counter.hpp"

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "stream/mapped_memory.hpp"

namespace tutti::core {

// The counters of one kind of device that nobody uses.
struct StreamCounter::CounterPool {
  static CounterPool& of(const tutti_device* device) {
    static std::mutex mutex;
    static auto& all = *new std::map<const tutti_device*, CounterPool>;
    const std::lock_guard lock(mutex);
    return all[device];
  }

  CounterAddress take(const DeviceTables& device) {
    constexpr uint64_t page = 4096, line = 64;  // no two counters share a cache line
    const std::lock_guard lock(mutex);
    if (free.empty()) {
      const MappedMemory& made = *pages.emplace_back(std::make_unique<MappedMemory>(device, page));
      for (uint64_t at = 0; at < page; at += line)
        free.push_back(
            {reinterpret_cast<uint32_t*>(made.host() + at), reinterpret_cast<uint32_t*>(made.device() + at)});
    }
    const CounterAddress taken = free.back();
    free.pop_back();
    return taken;
  }

  std::mutex mutex;
  std::vector<CounterAddress> free;
  std::vector<std::unique_ptr<MappedMemory>> pages;  // for as long as the process lives
};

StreamCounter::StreamCounter(const DeviceTables& device)
    : pool_(CounterPool::of(device.memory)), address_(pool_.take(device)) {
  std::atomic_ref(*address_.host).store(0, std::memory_order_relaxed);
}

StreamCounter::~StreamCounter() {
  const std::lock_guard lock(pool_.mutex);
  pool_.free.push_back(address_);
}

tutti_command StreamCounter::command(uint32_t kind, uint32_t value) const {
  return {.kind = kind, .flag = address_.device, .value = value};
}

}  // namespace tutti::core
