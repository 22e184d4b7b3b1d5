// SPDX-License-Identifier: Apache-2.0
//
// The host memory that streams see, as they see it. CUDA carries out a copy from host memory to host memory while the
// host waits, also the one that is called asynchronous ("API synchronization behavior" in the driver's manual); whoever
// waits there for a stream cannot release it. Such copies are made by a kernel, so they have to be known.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <shared_mutex>

namespace tutti::cuda {

// Any thread.
class MappedHost {
 public:
  void add(const void* host, const void* seen, uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    ranges_[reinterpret_cast<uintptr_t>(seen)] = {reinterpret_cast<uintptr_t>(host), bytes};
  }
  void remove(const void* host) {
    const std::lock_guard lock(mutex_);
    std::erase_if(ranges_,
                  [host](const auto& range) { return range.second.host == reinterpret_cast<uintptr_t>(host); });
  }
  bool holds(const void* seen) const {
    const auto at = reinterpret_cast<uintptr_t>(seen);
    const std::shared_lock lock(mutex_);
    auto range = ranges_.upper_bound(at);
    return range != ranges_.begin() && at - (--range)->first < range->second.bytes;
  }

 private:
  struct Range {
    uintptr_t host = 0;
    uint64_t bytes = 0;
  };
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, Range> ranges_;  // by where streams see them
};

}  // namespace tutti::cuda
