// SPDX-License-Identifier: Apache-2.0
//
// Device memory that the application has registered: it promises to keep it until it has deregistered it, so that other
// processes of the host may map it and read it where it is.
#pragma once

#include <tutti/registry.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "engine/direct_board.hpp"

namespace tutti::core {

// Process-wide. Every function may be called by any thread.
class DirectBuffers {
 public:
  static DirectBuffers& process();
  // Throws Failure.
  void add(const DeviceTables& tables, void* address, uint64_t bytes);
  // False: no such memory was registered. Waits until no other process maps it; throws Failure when one still does
  // after `patience`: it stays the library's until a later call succeeds.
  bool remove(void* address, std::chrono::milliseconds patience = std::chrono::seconds(1));

  struct Place {
    uint64_t buffer_id = 0;
    uint64_t offset = 0;  // in its allocation
  };
  // Where registered bytes lie. Throws Failure, saying why not, when they are not registered.
  Place find(const DeviceTables& tables, const void* address, uint64_t bytes) const;
  // Ranks that read the board may map that buffer from now on.
  void given(const DeviceTables& tables, uint64_t buffer_id, std::shared_ptr<DirectBoard> board);

 private:
  struct Range {
    DeviceTables tables;
    uint64_t bytes = 0;
    uint64_t buffer_id = 0;
    bool withdrawn = false;
  };
  using Buffer = std::pair<const tutti_device*, uint64_t>;
  mutable std::mutex mutex_;
  std::map<std::byte*, Range> ranges_;
  std::map<Buffer, std::vector<std::shared_ptr<DirectBoard>>> given_;
};

}  // namespace tutti::core
