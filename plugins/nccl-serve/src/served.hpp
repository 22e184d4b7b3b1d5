// SPDX-License-Identifier: Apache-2.0
//
// The transport that is served: its domain, its capabilities, and memory that is registered with it.
#pragma once

#include <tutti/plugin/transport.h>

#include <cstdint>
#include <mutex>
#include <string>

#include "settings.hpp"

namespace tutti::nccl::serve {

// The handle that regMr returns. Any comm of the transport may use it.
struct Memory {
  char* data = nullptr;
  size_t bytes = 0;
  tutti_region* region = nullptr;  // NULL: host memory that the transport does not register
  bool is_device = false;
  bool holds(const void* at, size_t n) const {
    const char* begin = static_cast<const char*>(at);
    return begin >= data && n <= bytes && static_cast<size_t>(begin - data) <= bytes - n;
  }
};

// One for each transport in a process, for as long as that lives. [any thread]
class Served {
 public:
  // The one that the settings name; found, opened and asked for its capabilities at the first call. Throws sdk::Error.
  static Served& find(const Settings& settings);
  // That of the last find; nullptr: none yet.
  static Served* current();

  const tutti_transport& table() const { return *table_; }
  const std::string& name() const { return name_; }
  const tutti_transport_caps& caps() const { return caps_; }
  tutti_domain* domain() const { return domain_; }
  const Settings& settings() const { return settings_; }
  // To be held in calls of the transport that the ABI marks [control].
  std::mutex& control() { return control_; }

  // The kinds of memory, as ptrSupport.
  int pointers() const;
  // `type`: NCCL_PTR_HOST or NCCL_PTR_CUDA; `fd`: a dma-buf that holds the memory at `fd_offset`, or -1.
  Memory* register_memory(void* data, size_t bytes, int type, int fd, uint64_t fd_offset);
  void deregister_memory(Memory* memory);

 private:
  explicit Served(const Settings& settings);
  const Settings settings_;
  const std::string name_;
  const tutti_transport* table_ = nullptr;
  tutti_domain* domain_ = nullptr;
  tutti_transport_caps caps_{};
  std::mutex control_;
};

}  // namespace tutti::nccl::serve
