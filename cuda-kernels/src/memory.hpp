// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/plugin/device.h>

#include <cstdint>

namespace tutti::cuda {

// The functions of device/1, as errors or results; any thread.
void query(tutti_device_caps& caps);
void classify(const void* address, tutti_pointer& pointer);
void* allocate(uint32_t device, uint64_t bytes);
void release(void* address);
void* map_host(void* address, uint64_t bytes);
void unmap_host(void* address);
void enable_peer(uint32_t device, uint32_t peer);

}  // namespace tutti::cuda
