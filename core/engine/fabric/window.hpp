// SPDX-License-Identifier: Apache-2.0
//
// Memory that the ranks of a communicator have registered together (tutti_comm_register).
#pragma once

#include <tutti/tutti.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/fabric/devices.hpp"
#include "engine/fabric/memory.hpp"

// The application's handle. Belongs to the communicator.
struct tutti_window {
  uint64_t id = 0;  // the same on all ranks, different for any two windows of a communicator
  std::byte* address = nullptr;
  uint64_t bytes = 0;
  tutti::core::DeviceMemory where;  // without tables: host memory
  uint64_t buffer_id = 0;           // of the device's allocation
  std::string staged;               // why calls do not use it in place; "": they do
  // Device memory: by rank, where this rank's device sees it; nullptr: a rank of this process.
  std::vector<std::byte*> bases;
  // Host memory: by port. `offset` is that of the window's first byte.
  std::vector<tutti::core::Registration> registrations;
  std::vector<bool> owned;  // by port: the window deregisters it
};

namespace tutti::core {

using WindowList = std::vector<std::unique_ptr<tutti_window>>;

// The window that holds [address, address + bytes); nullptr: none does.
inline const tutti_window* find_window(const WindowList& windows, const void* address, uint64_t bytes) {
  const auto first = reinterpret_cast<uintptr_t>(address);
  for (const auto& window : windows) {
    const uint64_t offset = first - reinterpret_cast<uintptr_t>(window->address);  // huge when it lies below
    if (offset < window->bytes && bytes <= window->bytes - offset) return window.get();
  }
  return nullptr;
}

}  // namespace tutti::core
