// SPDX-License-Identifier: Apache-2.0
//
// The simulated devices' memory: pages of the process, known by range. Released ranges stay reserved and unreadable, so
// that using one is noticed.
#pragma once

#include <tutti/plugin/device.h>

#include <cstdint>

namespace tutti::simulated {

// How many devices there are.
uint32_t device_count();
// Throws sdk::Error unless the device exists.
void check_device(uint32_t device);

// All may be called by any thread.
void* allocate(uint32_t device, uint64_t bytes);
void release(void* address);
void classify(const void* address, tutti_pointer& pointer);
void map_host(void* address, uint64_t bytes);
void unmap_host(void* address);
// Throws unless [address, address + bytes) is device memory or mapped host memory: what a stream may touch.
void check_reachable(const void* address, uint64_t bytes);

}  // namespace tutti::simulated
