// SPDX-License-Identifier: Apache-2.0
//
// Other processes' allocations that are mapped here: each once for a device, however often it is imported, and until
// the last import of it is closed. CUDA maps a handle once only, and mapping takes as long as thousands of small
// collectives.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <compare>
#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <tutti/sdk/plugin.hpp>

namespace tutti::cuda {

// A process of this host, told from all others: numbers of processes come again, and each container counts its own.
struct Process {
  uint64_t number = 0, name_space = 0, started = 0;
  auto operator<=>(const Process&) const = default;
};
inline Process this_process() {
  Process mine{static_cast<uint64_t>(getpid()), 0, 0};
  struct stat state{};
  if (stat("/proc/self/ns/pid", &state) == 0) mine.name_space = state.st_ino;
  std::string line;
  std::getline(std::ifstream("/proc/self/stat"), line);
  // The 22nd field; the second is the program's name in parentheses, which may hold anything.
  size_t at = line.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  if (at != std::string::npos) mine.started = std::strtoull(line.c_str() + at, nullptr, 10);
  return mine;
}

// Any thread. `open()` and `close(key, base)` map and unmap; what they throw leaves the cache as it was.
class ImportCache {
 public:
  struct Key {
    uint32_t device = 0, form = 0;
    Process process;
    uint64_t buffer_id = 0, bytes = 0;
    std::array<uint8_t, 64> handle{};
    auto operator<=>(const Key&) const = default;
  };
  template <typename Open>
  void* take(const Key& key, Open&& open) {
    const std::lock_guard lock(mutex_);
    const auto found = mappings_.find(key);
    if (found != mappings_.end()) {
      ++found->second.imports;
      return found->second.base;
    }
    void* base = open();
    mappings_[key] = {base, 1};
    return base;
  }
  template <typename Close>
  void give_back(void* base, Close&& close) {
    const std::lock_guard lock(mutex_);
    for (auto at = mappings_.begin(); at != mappings_.end(); ++at) {
      if (at->second.base != base) continue;
      if (at->second.imports == 1) {
        close(at->first, base);
        mappings_.erase(at);
      } else {
        --at->second.imports;
      }
      return;
    }
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "close_import: " + std::to_string(reinterpret_cast<uintptr_t>(base)) +
                                                 " is not the base of an import that is open");
  }

 private:
  struct Mapping {
    void* base = nullptr;
    uint64_t imports = 0;
  };
  std::mutex mutex_;
  std::map<Key, Mapping> mappings_;
};

}  // namespace tutti::cuda
