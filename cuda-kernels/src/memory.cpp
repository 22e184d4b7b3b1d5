// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <unistd.h>

#include <cstring>
#include <string>

#include "cuda_error.hpp"
#include "driver.hpp"
#include "import_cache.hpp"

namespace tutti::cuda {
namespace {

// A device that this process already uses, or -1.
int used_device() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess) return -1;
  for (int device = 0; device < devices; ++device) {
    unsigned flags = 0;
    int active = 0;
    if (driver().primary_context_state(device, &flags, &active) == CUDA_SUCCESS && active) return device;
  }
  return -1;
}

// What a tutti_memory_export holds.
constexpr uint32_t legacy_handle = 1;
struct Exported {
  cudaIpcMemHandle_t handle;
  uint64_t process;
};
static_assert(sizeof(Exported) <= sizeof(tutti_memory_export::data) && sizeof(cudaIpcMemHandle_t) == 64);

ImportCache& imports() {
  static auto* all = new ImportCache();
  return *all;
}

}  // namespace

void query(tutti_device_caps& caps) {
  int devices = 0, version = 0;
  check("cudaDriverGetVersion", cudaDriverGetVersion(&version));
  if (!version) throw sdk::Error(TUTTI_NOT_SUPPORTED, "cudaDriverGetVersion: no CUDA driver (libcuda.so.1) was found");
  check("cudaGetDeviceCount", cudaGetDeviceCount(&devices));
  driver();
  caps.memory_kind = TUTTI_MEMORY_CUDA;
  caps.devices = static_cast<uint32_t>(devices);
  caps.flags = TUTTI_DEVICE_EXPORTS;
}

void classify(const void* address, tutti_pointer& pointer) {
  CUmemorytype type{};
  int device = 0;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  unsigned long long id = 0;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
                                  CU_POINTER_ATTRIBUTE_BUFFER_ID};
  void* answers[] = {&type, &device, &base, &bytes, &id};
  // Memory that CUDA does not know answers with zeros.
  const auto ask = [&] {
    return driver().pointer_get_attributes(sizeof wanted / sizeof *wanted, wanted, answers,
                                           reinterpret_cast<CUdeviceptr>(address));
  };
  CUresult result = ask();
  if (result == CUDA_ERROR_INVALID_CONTEXT) {  // this thread has none; where nobody has one there is no device memory
    if (const int used = used_device(); used >= 0) {
      const CurrentDevice current(static_cast<uint32_t>(used));
      result = ask();
    }
  }
  pointer.kind = TUTTI_MEMORY_HOST;
  if (result == CUDA_ERROR_INVALID_VALUE || result == CUDA_ERROR_NOT_INITIALIZED ||
      result == CUDA_ERROR_INVALID_CONTEXT)
    return;
  if (result != CUDA_SUCCESS) fail("cuPointerGetAttributes", result);
  if (type != CU_MEMORYTYPE_DEVICE) return;
  pointer.kind = TUTTI_MEMORY_CUDA;
  pointer.device = static_cast<uint32_t>(device);
  pointer.base = reinterpret_cast<void*>(base);
  pointer.bytes = bytes;
  pointer.buffer_id = id;
}

void* allocate(uint32_t device, uint64_t bytes) {
  const BesideCapture beside;
  const CurrentDevice current(device);
  void* address = nullptr;
  if (const cudaError_t error = cudaMalloc(&address, bytes ? bytes : 1); error != cudaSuccess)
    fail("cudaMalloc of " + std::to_string(bytes) + " bytes on device " + std::to_string(device), error);
  return address;
}

void release(void* address) {
  const BesideCapture beside;
  check("cudaFree", cudaFree(address));
}

void* map_host(void* address, uint64_t bytes) {
  const BesideCapture beside;
  const cudaError_t registered = cudaHostRegister(address, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (registered != cudaSuccess)
    fail("cudaHostRegister of " + std::to_string(bytes) + " bytes (is the limit of locked memory too low? ulimit -l)",
         registered);
  void* seen = nullptr;
  check("cudaHostGetDevicePointer", cudaHostGetDevicePointer(&seen, address, 0));
  return seen;
}

void unmap_host(void* address) {
  const BesideCapture beside;
  check("cudaHostUnregister", cudaHostUnregister(address));
}

void enable_peer(uint32_t device, uint32_t peer) {
  const BesideCapture beside;
  int able = 0;
  check("cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(&able, static_cast<int>(device), static_cast<int>(peer)));
  if (!able)
    throw sdk::Error(TUTTI_NOT_SUPPORTED, "device " + std::to_string(device) + " has no peer access to device " +
                                              std::to_string(peer) +
                                              " (cudaDeviceCanAccessPeer): run these ranks as processes of their own, "
                                              "whose bytes go through the host");
  const CurrentDevice current(device);
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(static_cast<int>(peer), 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();
  else
    check("cudaDeviceEnablePeerAccess", enabled);
}

int export_memory(const void* address, tutti_memory_export& memory) {
  tutti_pointer pointer{};
  classify(address, pointer);
  if (pointer.kind != TUTTI_MEMORY_CUDA)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "export_memory: " + std::to_string(reinterpret_cast<uintptr_t>(address)) +
                                                 " is not in device memory");
  const BesideCapture beside;
  const CurrentDevice current(pointer.device);
  Exported exported{};
  exported.process = static_cast<uint64_t>(getpid());
  if (const cudaError_t error = cudaIpcGetMemHandle(&exported.handle, pointer.base); error != cudaSuccess)
    fail("cudaIpcGetMemHandle (for memory of cudaMalloc only)", error);
  memory = {};
  memory.form = legacy_handle;
  memory.device = pointer.device;
  memory.bytes = pointer.bytes;
  memory.offset = static_cast<uint64_t>(static_cast<const char*>(address) - static_cast<const char*>(pointer.base));
  memory.buffer_id = pointer.buffer_id;
  std::memcpy(memory.data, &exported, sizeof exported);
  return -1;
}

void* import_memory(uint32_t device, const tutti_memory_export& memory, int fd) {
  if (memory.form != legacy_handle || fd >= 0 || memory.offset >= memory.bytes)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "import_memory: form " + std::to_string(memory.form) + ", offset " +
                                                 std::to_string(memory.offset) + " of " + std::to_string(memory.bytes) +
                                                 " bytes: this is no export of device cuda");
  Exported exported{};
  std::memcpy(&exported, memory.data, sizeof exported);
  if (exported.process == static_cast<uint64_t>(getpid()))
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "import_memory: this process exported it: use the address itself");
  ImportCache::Key key{device, exported.process, memory.buffer_id, {}};
  std::memcpy(key.handle.data(), &exported.handle, sizeof exported.handle);
  return imports().take(key, [&] {
    const BesideCapture beside;
    const CurrentDevice current(device);
    void* base = nullptr;
    if (const cudaError_t error = cudaIpcOpenMemHandle(&base, exported.handle, cudaIpcMemLazyEnablePeerAccess);
        error != cudaSuccess)
      fail("cudaIpcOpenMemHandle of memory of process " + std::to_string(exported.process) + " on device " +
               std::to_string(device),
           error);
    tutti_pointer mapped{};
    classify(base, mapped);
    if (mapped.bytes < memory.bytes) {
      cudaIpcCloseMemHandle(base);
      throw sdk::Error(TUTTI_INVALID_ARGUMENT, "import_memory: " + std::to_string(mapped.bytes) +
                                                   " bytes are mapped, the export says " +
                                                   std::to_string(memory.bytes));
    }
    return base;
  });
}

void close_import(void* base) {
  imports().give_back(base, [](void* mapped) {
    const BesideCapture beside;
    check("cudaIpcCloseMemHandle", cudaIpcCloseMemHandle(mapped));
  });
}

}  // namespace tutti::cuda
