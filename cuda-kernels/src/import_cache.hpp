// SPDX-License-Identifier: Apache-2.0
//
// Other processes' allocations that are mapped here: each once for a device, however often it is imported, and until
// the last import of it is closed. CUDA maps a handle once only, and mapping takes as long as thousands of small
// collectives.
#pragma once

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <compare>
#include <condition_variable>
#include <cstdint>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <tutti/sdk/plugin.hpp>
#include <tutti/sdk/text.hpp>

namespace tutti::cuda {

// A process of this host, told from all others: numbers of processes come again, and each container counts its own.
struct Process {
  uint64_t number = 0, name_space = 0, started = 0;
  auto operator<=>(const Process&) const = default;
};
inline Process this_process() {
  Process mine{static_cast<uint64_t>(getpid()), 0, 0};
  struct stat state {};
  if (stat("/proc/self/ns/pid", &state) == 0) mine.name_space = state.st_ino;
  std::string line;
  std::getline(std::ifstream("/proc/self/stat"), line);
  // The 22nd field; the second is the program's name in parentheses, which may hold anything.
  size_t at = line.rfind(')');
  for (int field = 2; field < 22 && at != std::string::npos; ++field) at = line.find(' ', at + 1);
  if (at != std::string::npos) {
    std::string_view rest = std::string_view(line).substr(at + 1);
    take_number(rest, mine.started);
  }
  return mine;
}

// Any thread. `open()` and `close(key, base)` map and unmap; what they throw leaves the cache as it was. They may wait
// for the device: meanwhile only threads that want the same mapping wait.
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
    std::unique_lock lock(mutex_);
    for (auto found = mappings_.find(key); found != mappings_.end(); found = mappings_.find(key)) {
      if (found->second.base) {
        ++found->second.imports;
        return found->second.base;
      }
      changed_.wait(lock);
    }
    Mapping& mapping = mappings_[key];  // without a base: it is being made
    try {
      lock.unlock();
      void* base = open();
      lock.lock();
      mapping = {base, 1};
    } catch (...) {
      if (!lock) lock.lock();
      mappings_.erase(key);
      changed_.notify_all();
      throw;
    }
    changed_.notify_all();
    return mapping.base;
  }
  template <typename Close>
  void give_back(void* base, Close&& close) {
    std::unique_lock lock(mutex_);
    const auto found =
        std::find_if(mappings_.begin(), mappings_.end(), [base](const auto& one) { return one.second.base == base; });
    if (!base || found == mappings_.end())
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, "close_import: " + std::to_string(reinterpret_cast<uintptr_t>(base)) +
                                                   " is not the base of an import that is open");
    if (--found->second.imports) return;
    found->second.base = nullptr;
    try {
      lock.unlock();
      close(found->first, base);
      lock.lock();
    } catch (...) {
      if (!lock) lock.lock();
      found->second = {base, 1};
      changed_.notify_all();
      throw;
    }
    mappings_.erase(found);
    changed_.notify_all();
  }

 private:
  struct Mapping {
    void* base = nullptr;
    uint64_t imports = 0;
  };
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<Key, Mapping> mappings_;
};

}  // namespace tutti::cuda
