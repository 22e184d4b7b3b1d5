// SPDX-License-Identifier: Apache-2.0
//
// A page-aligned buffer with guard bytes behind its last used byte, on the host or on a device.
#pragma once

#include <cstddef>
#include <cstdint>

namespace perf {

class Device;

constexpr uint64_t guard_bytes = 64;
constexpr unsigned char poison_byte = 0xa5;

// Throws tutti::Error or std::bad_alloc when there is no memory. Freed on destruction.
class Memory {
 public:
  // `bytes` usable bytes; `registered`: on the host from tutti_mem_alloc. On `device` unless that is NULL.
  Memory(uint64_t bytes, bool registered, const Device* device);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  // The buffer for collectives.
  char* data() const { return data_; }
  // The host's view of it: the same bytes, or a copy that upload() and download() transfer.
  char* host() const { return host_; }
  // Append to the device's stream; nothing for host memory. The guard travels too.
  void upload(uint64_t bytes) const;
  void download(uint64_t bytes) const;
  // The host's bytes of an address that collectives get, which lies within the buffer.
  char* host_of(const void* address) const { return host_ + (static_cast<const char*>(address) - data_); }
  uint64_t size() const { return size_; }
  bool holds(const void* address) const { return address >= data_ && address < data_ + size_; }
  // Overwrites the first `bytes` bytes and the guard behind them, on the host.
  void poison(uint64_t bytes) const;
  // How many guard bytes behind the first `bytes` bytes were overwritten.
  uint64_t guards_lost(uint64_t bytes) const;

 private:
  char* data_ = nullptr;
  char* host_ = nullptr;
  char* seen_ = nullptr;  // host_, as the device's streams see it
  uint64_t size_ = 0;
  bool registered_;
  const Device* device_;
};

}  // namespace perf
