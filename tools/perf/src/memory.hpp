// SPDX-License-Identifier: Apache-2.0
//
// A page-aligned buffer with guard bytes behind its last used byte.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perf {

constexpr uint64_t guard_bytes = 64;
constexpr unsigned char poison_byte = 0xa5;

// Requires nothing; throws tutti::Error or std::bad_alloc when there is no memory. Freed on destruction.
class Memory {
 public:
  // `bytes` usable bytes; `registered`: from tutti_mem_alloc.
  Memory(uint64_t bytes, bool registered);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* data() const { return data_; }
  // Overwrites the first `bytes` bytes and the guard behind them.
  void poison(uint64_t bytes) const;
  // How many guard bytes behind the first `bytes` bytes were overwritten.
  uint64_t guards_lost(uint64_t bytes) const;

 private:
  char* data_ = nullptr;
  bool registered_;
};

}  // namespace perf
