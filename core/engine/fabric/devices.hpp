// SPDX-License-Identifier: Apache-2.0
//
// The devices that work in this process: which one a communicator is bound to, whose memory an address is, where a
// device is, and what it can compute.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <string>

namespace tutti::core {

// One device of this process, or where a buffer lies. Without tables: none, and host memory.
struct DeviceMemory {
  DeviceTables tables;
  uint32_t device = 0;
  explicit operator bool() const { return tables.memory != nullptr; }
  bool operator==(const DeviceMemory& other) const {
    return tables.memory == other.tables.memory && device == other.device;
  }
};
// "device cuda 1", "the host".
std::string describe(const DeviceMemory& where);

// The device that a communicator is bound to, by tutti_comm_config.device or TUTTI_DEVICE, which `source` names; empty:
// the default. Throws Failure that lists the devices that there are.
DeviceMemory bind_device(const std::string& text, const char* source);

// Where a device is, and estimates of its speed; "", -1 and 0: not known.
struct DeviceFacts {
  std::string id;  // hexadecimal digits: the same in every process of the host
  std::string pci;
  int32_t numa = -1;
  uint64_t link_latency_ns = 0;
  uint64_t link_bandwidth = 0;  // bytes per second
  uint64_t copy_bandwidth = 0;
};
DeviceFacts facts_of(const DeviceMemory& device);

// Throws Failure where a device refuses the address. `first`: the device whose kind is asked first.
DeviceMemory find_device(const void* address, const DeviceMemory& first = {});
// The device's answer to where an address lies. Throws Failure.
tutti_pointer classify(const DeviceTables& tables, const void* address);
// The claims of a device that works here.
const tutti_device_caps& caps_of(const DeviceTables& tables);
// The claims of its executor; zeros where that has none to make. Throws Failure.
tutti_executor_caps executor_caps_of(const DeviceMemory& device);
// Throws Failure, TUTTI_NOT_SUPPORTED, unless the device reduces this type by this operator; exactly, if it must.
void require_reduction(const char* call, const DeviceTables& tables, uint32_t dtype, uint32_t op, bool exact = false);

}  // namespace tutti::core
