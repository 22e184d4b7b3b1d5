// SPDX-License-Identifier: Apache-2.0
//
// The simulated devices' memory: pages of the process, known by range. Released ranges stay reserved and unreadable
// (the last 256 of them), so that using one is noticed. With TUTTI_SIMULATED_PRIVATE=1 the addresses of device memory
// are unreadable at all times, as on most real devices, and streams see the same pages elsewhere. The pages are those
// of an anonymous file, by whose descriptor another process maps them too.
#pragma once

#include <tutti/plugin/device.h>

#include <cstdint>

namespace tutti::simulated {

// The device's name. A second device of the same objects, for tests, has another.
extern const char device_name[];
// The kind of memory, which the host gives to the name.
uint32_t memory_kind();
// How many devices there are.
uint32_t device_count();
// Throws sdk::Error unless the device exists.
void check_device(uint32_t device);

// 16 bytes: the same in every process of the host.
void identify(uint32_t device, uint8_t* id);
void describe(uint32_t device, tutti_device_facts& facts);

// All may be called by any thread.
void* allocate(uint32_t device, uint64_t bytes);
// With Hazard::managed: memory that processors reach, too, and that no other process maps.
void* allocate_managed(uint32_t device, uint64_t bytes);
// With Hazard::ranges: `n` allocations, one behind the other in one range of addresses.
void* allocate_ranges(uint32_t device, uint64_t n, uint64_t bytes);
// The device of an address; 0 for an address outside device memory.
uint32_t device_of(const void* address);
void release(void* address);
void classify(const void* address, tutti_pointer& pointer);
void map_host(void* address, uint64_t bytes);
void unmap_host(void* address);
void enable_peer(uint32_t device, uint32_t peer);
// The descriptor is the caller's.
int export_memory(const void* address, tutti_memory_export& memory);
void* import_memory(uint32_t device, const tutti_memory_export& memory, int fd);
void close_import(void* base);
// In the place of a dma-buf: a descriptor of the pages' file, which is the caller's.
int export_dmabuf(const void* address, uint64_t bytes, uint64_t& offset);
// The address at which a stream accesses [address, address + bytes). Throws unless that is device memory or mapped host
// memory.
void* reach(const void* address, uint64_t bytes);

}  // namespace tutti::simulated
