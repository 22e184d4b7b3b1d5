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
// Is this address of host memory that map_host has mapped, as streams see it?
bool seen_of_host(const void* address);
void enable_peer(uint32_t device, uint32_t peer);
// Throws where `device`, whose context is current, may not read memory of a peer.
void require_readable(uint32_t device, const void* address);
void identify(uint32_t device, uint8_t* id);
void describe(uint32_t device, tutti_device_facts& facts);
// Allocations of cudaMalloc by CUDA's legacy handles, without a descriptor; those of cuMemCreate, where they were made
// for it, by a descriptor.
int export_memory(const void* address, tutti_memory_export& memory);
void* import_memory(uint32_t device, const tutti_memory_export& memory, int fd);
void close_import(void* base);
// A dma-buf of the pages that hold the memory.
int export_dmabuf(const void* address, uint64_t bytes, uint64_t& offset);

}  // namespace tutti::cuda
