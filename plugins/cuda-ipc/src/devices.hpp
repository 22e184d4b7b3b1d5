// SPDX-License-Identifier: Apache-2.0
//
// The devices whose memory this transport shares: other plugins, used through device/1 alone. So one
// source serves CUDA's memory and the simulated device's.
#pragma once

#include <tutti/plugin/device.h>

#include <string>
#include <tutti/sdk/local/endpoint.hpp>
#include <vector>

namespace tutti::cuda_ipc {

// One kind of device. Lives as long as the process.
struct Device {
  const tutti_device* memory;
  tutti_device_caps caps;
  const char* name() const { return memory->name; }
};

// Looks for those of all loaded plugins that work here and export memory. [control: it calls list_interface]
void find_devices();

// The settings of a domain (README.md has the table). Throws sdk::Error.
sdk::local::Settings read_settings();
class Domain {
 public:
  Domain() { find_devices(); }
  const sdk::local::Settings& settings() const { return settings_; }
  std::vector<sdk::local::EqualValue> equal_values() const;

 private:
  const sdk::local::Settings settings_ = read_settings();
};

// Has any been found?
bool has_devices();
// nullptr where there is none of that kind. [any thread]
const Device* device_of_kind(uint32_t kind);

// Throws where a call of a device returned an error: `what` says which.
void check(const Device& device, const char* what, tutti_status status);

// Host memory that streams of a device see.
class VisiblePages {
 public:
  // Throws sdk::Error, also for a file that is not sealed or is shorter.
  VisiblePages(const Device& device, const sdk::FileDescriptor& file, uint64_t bytes);
  ~VisiblePages();
  VisiblePages(const VisiblePages&) = delete;
  VisiblePages& operator=(const VisiblePages&) = delete;
  uint8_t* host() const { return pages_.data(); }
  uint8_t* seen() const { return static_cast<uint8_t*>(seen_); }

 private:
  const Device& device_;
  const sdk::local::Mapping pages_;
  void* seen_ = nullptr;
};

}  // namespace tutti::cuda_ipc
