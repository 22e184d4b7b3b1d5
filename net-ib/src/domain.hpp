// SPDX-License-Identifier: Apache-2.0
//
// transport/1's domain: the chosen devices, opened, and the memory registered with them.
#pragma once

#include <tutti/plugin/transport.h>

#include <cstdint>
#include <string>
#include <vector>

#include "port.hpp"
#include "settings.hpp"
#include "verbs.hpp"

namespace tutti::ib {

struct Device {
  std::string name;
  Context context;
  ProtectionDomain pd;
  std::unique_ptr<DeviceEvents> events = std::make_unique<DeviceEvents>();
};

// Registered memory: one registration per device, so that any rail can read and write it.
struct Region {
  char* base = nullptr;
  uint64_t bytes = 0;
  bool on_device = false;  // the processor can neither read nor write it
  std::vector<Registration> by_device;

  bool holds(const void* data, uint64_t size) const {
    const auto offset = static_cast<uint64_t>(static_cast<const char*>(data) - base);
    return data >= base && offset <= bytes && size <= bytes - offset;
  }
};

class Domain {
 public:
  // Finds, chooses and opens. Throws sdk::Error.
  explicit Domain(const tutti_domain_config& config);

  // transport/1. [any thread]
  tutti_region* register_memory(const tutti_memory& memory);
  void deregister_memory(tutti_region* region);

  const Settings& settings() const { return settings_; }
  const std::vector<Port>& rails() const { return rails_; }  // the chosen ports, best first
  const Device& device(uint32_t rail) const { return devices_[device_of_[rail]]; }
  const ibv_mr& registration(const Region& region, uint32_t rail) const { return *region.by_device[device_of_[rail]]; }

 private:
  Settings settings_ = Settings::read();
  std::vector<Port> rails_;
  std::vector<Device> devices_;
  std::vector<uint32_t> device_of_;  // by rail: two ports of one device share it
};

}  // namespace tutti::ib
