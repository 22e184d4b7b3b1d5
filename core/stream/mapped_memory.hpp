// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/registry.h>

#include <cstddef>
#include <cstdint>

namespace tutti::core {

// Host memory that a device sees.
class MappedMemory {
 public:
  MappedMemory(const DeviceTables& device, uint64_t bytes);
  MappedMemory(const MappedMemory&) = delete;
  MappedMemory& operator=(const MappedMemory&) = delete;
  ~MappedMemory();
  std::byte* host() const { return host_; }
  std::byte* device() const { return device_; }

 private:
  DeviceTables tables_;
  uint64_t bytes_;
  std::byte* host_ = nullptr;
  std::byte* device_ = nullptr;
};

}  // namespace tutti::core
