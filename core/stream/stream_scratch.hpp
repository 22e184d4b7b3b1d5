// SPDX-License-Identifier: Apache-2.0
//
// The scratch of calls that use no windows: memory of the device that grows to what the largest plan needs.
#pragma once

#include <fmt/format.h>

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/failure.hpp"
#include "engine/fabric/devices.hpp"

namespace tutti::core {

class StreamScratch {
 public:
  explicit StreamScratch(const DeviceMemory& device) : device_(device) {}
  StreamScratch(const StreamScratch&) = delete;
  StreamScratch& operator=(const StreamScratch&) = delete;

  std::byte* address() const { return static_cast<std::byte*>(address_); }
  bool holds(uint64_t bytes) const { return bytes <= bytes_; }
  bool empty() const { return !address_ && kept_.empty(); }
  // A graph has the present address: it stays until release().
  void keep() {
    if (address_ && !is_kept()) kept_.push_back(address_);
  }
  // Both in the device's gate. Throws Failure where there is no memory, and then there is none.
  void grow(uint64_t bytes) {
    const tutti_device* memory = device_.tables.memory;
    if (!is_kept()) free_memory(address_);
    address_ = nullptr;
    bytes_ = 0;
    if (const tutti_status status = memory->allocate(memory->self, device_.device, bytes, &address_); status < 0)
      throw Failure(status,
                    fmt::format("device {}: no scratch of {} bytes: {}", memory->name, bytes, take_plugin_error()));
    bytes_ = bytes;
  }
  void release() {
    if (!is_kept()) free_memory(address_);
    for (void* address : std::exchange(kept_, {})) free_memory(address);
    address_ = nullptr;
    bytes_ = 0;
  }

 private:
  bool is_kept() const { return !kept_.empty() && kept_.back() == address_; }
  void free_memory(void* address) const {
    if (address) device_.tables.memory->release(device_.tables.memory->self, address);
  }

  const DeviceMemory device_;
  void* address_ = nullptr;
  uint64_t bytes_ = 0;
  std::vector<void*> kept_;
};

}  // namespace tutti::core
