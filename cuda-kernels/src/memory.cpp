// SPDX-License-Identifier: Apache-2.0
#include "memory.hpp"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <set>
#include <string>
#include <tutti/sdk/arithmetic.hpp>
#include <tutti/sdk/text.hpp>
#include <utility>

#include "cuda_error.hpp"
#include "current_device.hpp"
#include "driver.hpp"
#include "import_cache.hpp"
#include "mapped_host.hpp"

namespace tutti::cuda {
namespace {

// The contents of a tutti_memory_export.
constexpr uint32_t legacy_handle = 1;  // of cudaIpcGetMemHandle
constexpr uint32_t by_descriptor = 2;  // of cuMemExportToShareableHandle, beside the record; `handle`: its address
struct Exported {
  cudaIpcMemHandle_t handle;
  Process process;
};
static_assert(sizeof(Exported) <= sizeof(tutti_memory_export::data) && sizeof(cudaIpcMemHandle_t) == 64);

// Physical memory for as long as it is mapped or anybody holds it.
class Allocation {
 public:
  explicit Allocation(CUmemGenericAllocationHandle handle) : handle_(handle) {}
  Allocation(const Allocation&) = delete;
  Allocation& operator=(const Allocation&) = delete;
  ~Allocation() { driver().mem_release(handle_); }
  CUmemGenericAllocationHandle get() const { return handle_; }

 private:
  CUmemGenericAllocationHandle handle_;
};

int export_descriptor(void* base) {
  CUmemGenericAllocationHandle handle{};
  const auto require = [](const char* call, CUresult result) {
    const char* name = "an unknown error";
    if (result == CUDA_SUCCESS) return;
    driver().get_error_name(result, &name);
    throw sdk::Error(TUTTI_NOT_SUPPORTED, std::string("export_memory: ") + call + ": " + name +
                                              ": other processes map memory of cudaMalloc, or of cuMemCreate with "
                                              "CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
  };
  require("cuMemRetainAllocationHandle", driver().mem_retain_allocation_handle(&handle, base));
  const Allocation allocation(handle);
  int fd = -1;
  require("cuMemExportToShareableHandle",
          driver().mem_export(&fd, allocation.get(), CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  return fd;
}

void* map_legacy(uint32_t device, const Exported& exported, uint64_t bytes) {
  void* base = nullptr;
  if (const cudaError_t error = cudaIpcOpenMemHandle(&base, exported.handle, cudaIpcMemLazyEnablePeerAccess);
      error != cudaSuccess)
    fail("cudaIpcOpenMemHandle of memory of process " + std::to_string(exported.process.number) + " on device " +
             std::to_string(device),
         error);
  tutti_pointer mapped{};
  classify(base, mapped);
  const auto before = static_cast<uint64_t>(static_cast<const char*>(base) - static_cast<const char*>(mapped.base));
  if (mapped.base && mapped.bytes - before >= bytes) return base;
  cudaIpcCloseMemHandle(base);
  throw sdk::Error(TUTTI_INVALID_ARGUMENT,
                   "import_memory: " + std::to_string(mapped.bytes) + " bytes from " + std::to_string(before) +
                       " before the handle's memory are mapped, the export says " + std::to_string(bytes));
}

void* map_descriptor(uint32_t device, int fd, uint64_t bytes) {
  CUmemGenericAllocationHandle handle{};
  check("cuMemImportFromShareableHandle",
        driver().mem_import(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                            CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  const Allocation allocation(handle);
  CUdeviceptr base{};
  check("cuMemAddressReserve", driver().mem_address_reserve(&base, bytes, 0, 0, 0));
  CUresult result = driver().mem_map(base, bytes, 0, allocation.get(), 0);
  if (result != CUDA_SUCCESS) {
    driver().mem_address_free(base, bytes);
    fail("cuMemMap of " + std::to_string(bytes) + " bytes of another process", result);
  }
  CUmemAccessDesc access{};
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = static_cast<int>(device);
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  result = driver().mem_set_access(base, bytes, &access, 1);
  if (result != CUDA_SUCCESS) {
    driver().mem_unmap(base, bytes);
    driver().mem_address_free(base, bytes);
    fail("cuMemSetAccess of device " + std::to_string(device) + " to memory of another process", result);
  }
  return reinterpret_cast<void*>(base);
}

void unmap(const ImportCache::Key& key, void* base) {
  if (driver_is_gone()) return;
  const CurrentDevice current(key.device);
  const BesideCapture beside;
  if (key.form == legacy_handle) return check("cudaIpcCloseMemHandle", cudaIpcCloseMemHandle(base));
  check("cuMemUnmap", driver().mem_unmap(reinterpret_cast<CUdeviceptr>(base), key.bytes));
  check("cuMemAddressFree", driver().mem_address_free(reinterpret_cast<CUdeviceptr>(base), key.bytes));
}

// Memory of cuMemCreate: the attributes tell of the reserved addresses, which may hold many allocations one behind the
// other. The mapping at `address` is one of them, with a number of its own.
void find_mapped_allocation(const void* address, tutti_pointer& pointer) {
  const CurrentDevice any;
  const auto at = reinterpret_cast<CUdeviceptr>(address);
  CUdeviceptr base = 0;
  size_t bytes = 0;
  if (driver().mem_get_address_range(&base, &bytes, at) != CUDA_SUCCESS) return;
  unsigned long long id = 0;
#if CUDA_VERSION >= 12080
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID};
#else
  CUpointer_attribute wanted[] = {static_cast<CUpointer_attribute>(20)};  // its number; older drivers refuse it
#endif
  void* answers[] = {&id};
  constexpr uint64_t of_another_count = uint64_t{1} << 63;
  if (driver().pointer_get_attributes(1, wanted, answers, at) == CUDA_SUCCESS && id)
    pointer.buffer_id = id | of_another_count;
  pointer.base = reinterpret_cast<void*>(base);
  pointer.bytes = bytes;
}

ImportCache& imports() {
  static auto* all = new ImportCache();
  return *all;
}

MappedHost& mapped_host() {
  static auto* all = new MappedHost();
  return *all;
}

std::atomic<bool> peers_enabled = false;

}  // namespace

namespace {

// The attributes on which every call relies, checked first.
void require_device(int device) {
  const std::pair<CUdevice_attribute, const char*> needed[] = {
      {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, "UNIFIED_ADDRESSING"},
      {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, "HOST_REGISTER_SUPPORTED"}};
  for (const auto& [attribute, name] : needed) {
    int able = 0;
    check("cuDeviceGetAttribute", driver().device_get_attribute(&able, attribute, device));
    if (!able)
      throw sdk::Error(TUTTI_NOT_SUPPORTED, "device " + std::to_string(device) + " cannot serve: its attribute " +
                                                name + " is 0; CUDA_VISIBLE_DEVICES leaves it out");
  }
}

bool is_managed(const void* address) {
  int managed = 0;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_IS_MANAGED};
  void* answers[] = {&managed};
  return driver().pointer_get_attributes(1, wanted, answers, reinterpret_cast<CUdeviceptr>(address)) == CUDA_SUCCESS &&
         managed;
}

}  // namespace

void query(tutti_device_caps& caps) {
  int devices = 0, version = 0;
  check("cudaDriverGetVersion", cudaDriverGetVersion(&version));
  if (!version) throw sdk::Error(TUTTI_NOT_SUPPORTED, "cudaDriverGetVersion: no CUDA driver (libcuda.so.1) was found");
  check("cudaGetDeviceCount", cudaGetDeviceCount(&devices));
  for (int device = 0; device < devices; ++device) require_device(device);
  caps.memory_kind = TUTTI_MEMORY_CUDA;
  caps.devices = static_cast<uint32_t>(devices);
  caps.flags = TUTTI_DEVICE_EXPORTS;
  caps.dtypes = sdk::all_dtypes();
  caps.ops = sdk::all_folds();
}

// Most addresses are the host's, and one attribute tells.
void classify(const void* address, tutti_pointer& pointer) {
  pointer.kind = TUTTI_MEMORY_HOST;
  if (driver_is_gone()) return;
  CUmemorytype type{};
  int device = 0, legacy = 0;
  CUdeviceptr base = 0;
  size_t bytes = 0;
  unsigned long long id = 0;
  CUmemoryPool pool = nullptr;
  CUpointer_attribute wanted[] = {
      CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
      CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
      CU_POINTER_ATTRIBUTE_BUFFER_ID,        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
      CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  void* answers[] = {&type, &device, &base, &bytes, &id, &legacy, &pool};
  // Memory that CUDA does not know answers with zeros.
  constexpr unsigned all = sizeof wanted / sizeof *wanted;
  const auto ask = [&] {
    const auto at = reinterpret_cast<CUdeviceptr>(address);
    const CUresult first = driver().pointer_get_attributes(1, wanted, answers, at);
    if (first != CUDA_SUCCESS || type != CU_MEMORYTYPE_DEVICE) return first;
    return driver().pointer_get_attributes(all, wanted, answers, at);
  };
  CUresult result = ask();
  if (result == CUDA_ERROR_INVALID_CONTEXT) {  // this thread has none; where nobody has one there is no device memory
    if (const int used = used_device(); used >= 0) {
      const CurrentDevice current(static_cast<uint32_t>(used));
      result = ask();
    }
  }
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
  if (!legacy && !pool && !is_managed(address)) find_mapped_allocation(address, pointer);
}

void* allocate(uint32_t device, uint64_t bytes) {
  const CurrentDevice current(device);
  const BesideCapture beside;
  void* address = nullptr;
  if (const cudaError_t error = cudaMalloc(&address, bytes ? bytes : 1); error != cudaSuccess)
    fail("cudaMalloc of " + std::to_string(bytes) + " bytes on device " + std::to_string(device), error);
  return address;
}

void release(void* address) {
  if (driver_is_gone()) return;
  const CurrentDevice any;
  const BesideCapture beside;
  check("cudaFree", cudaFree(address));
}

void* map_host(void* address, uint64_t bytes) {
  const CurrentDevice any;
  const BesideCapture beside;
  const cudaError_t registered = cudaHostRegister(address, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped);
  if (registered != cudaSuccess)
    fail("cudaHostRegister of " + std::to_string(bytes) + " bytes (is the limit of locked memory too low? ulimit -l)",
         registered);
  void* seen = nullptr;
  if (const cudaError_t error = cudaHostGetDevicePointer(&seen, address, 0); error != cudaSuccess) {
    cudaHostUnregister(address);
    fail("cudaHostGetDevicePointer", error);
  }
  mapped_host().add(address, seen, bytes);
  return seen;
}

void unmap_host(void* address) {
  if (driver_is_gone()) return;
  const CurrentDevice any;
  const BesideCapture beside;
  check("cudaHostUnregister", cudaHostUnregister(address));
  mapped_host().remove(address);
}

bool seen_of_host(const void* address) { return mapped_host().holds(address); }

void enable_peer(uint32_t device, uint32_t peer) {
  const CurrentDevice current(device);
  const BesideCapture beside;
  int able = 0;
  check("cudaDeviceCanAccessPeer", cudaDeviceCanAccessPeer(&able, static_cast<int>(device), static_cast<int>(peer)));
  if (!able)
    throw sdk::Error(TUTTI_NOT_SUPPORTED, "device " + std::to_string(device) + " has no peer access to device " +
                                              std::to_string(peer) +
                                              " (cudaDeviceCanAccessPeer): run these ranks as processes of their own, "
                                              "whose bytes go through the host");
  const cudaError_t enabled = cudaDeviceEnablePeerAccess(static_cast<int>(peer), 0);
  if (enabled == cudaErrorPeerAccessAlreadyEnabled)
    cudaGetLastError();
  else
    check("cudaDeviceEnablePeerAccess", enabled);
  peers_enabled = true;
}

// Peer access is to memory of cudaMalloc; pools and what was mapped by hand have access rights of their own, and a
// kernel that reads without them takes the whole context with it.
void require_readable(uint32_t device, const void* address) {
  if (!peers_enabled.load(std::memory_order_relaxed)) return;
  CUmemorytype type{};
  int owner = 0, legacy = 0, managed = 0;
  unsigned access = 0;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                  CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_IS_MANAGED,
                                  CU_POINTER_ATTRIBUTE_ACCESS_FLAGS};
  void* answers[] = {&type, &owner, &legacy, &managed, &access};
  if (driver().pointer_get_attributes(sizeof wanted / sizeof *wanted, wanted, answers,
                                      reinterpret_cast<CUdeviceptr>(address)) != CUDA_SUCCESS)
    return;  // a driver that cannot tell
  if (type != CU_MEMORYTYPE_DEVICE || static_cast<uint32_t>(owner) == device || legacy || managed || access) return;
  throw sdk::Error(TUTTI_NOT_SUPPORTED,
                   "device " + std::to_string(device) + " may not read the memory at " +
                       std::to_string(reinterpret_cast<uintptr_t>(address)) + " of device " + std::to_string(owner) +
                       ": it is not from cudaMalloc; allow it by cudaMemPoolSetAccess or cuMemSetAccess, or run these "
                       "ranks as processes of their own");
}

void identify(uint32_t device, uint8_t* id) {
  int devices = 0;
  check("cudaGetDeviceCount", cudaGetDeviceCount(&devices));
  if (device >= static_cast<uint32_t>(devices))
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "device " + std::to_string(device) + ": this machine has " +
                                                 std::to_string(devices) + ", counted from 0");
  CUuuid uuid{};
  check("cuDeviceGetUuid", driver().device_get_uuid(&uuid, static_cast<CUdevice>(device)));
  static_assert(sizeof uuid == 16);
  std::memcpy(id, &uuid, sizeof uuid);
}

// The speeds are those of a recent GPU with NVLink or PCIe 4: nothing measures them here.
void describe(uint32_t device, tutti_device_facts& facts) {
  char pci[24] = {};
  check("cuDeviceGetPCIBusId", driver().device_get_pci_bus_id(pci, sizeof pci, static_cast<CUdevice>(device)));
  std::transform(pci, pci + sizeof pci, pci, to_lower);  // as sysfs writes it
  static std::mutex mutex;
  static auto* addresses = new std::set<std::string>();
  const std::lock_guard lock(mutex);
  facts.pci = addresses->insert(pci).first->c_str();
  facts.numa = -1;
  facts.link_latency_ns = 4000;
  facts.link_bandwidth = 50'000'000'000;
  facts.copy_bandwidth = 20'000'000'000;
}

int export_memory(const void* address, tutti_memory_export& memory) {
  tutti_pointer pointer{};
  classify(address, pointer);
  if (pointer.kind != TUTTI_MEMORY_CUDA)
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "export_memory: " + std::to_string(reinterpret_cast<uintptr_t>(address)) +
                                                 " is not in device memory");
  if (is_managed(address))
    throw sdk::Error(TUTTI_NOT_SUPPORTED,
                     "export_memory: managed memory (cudaMallocManaged) is not mapped by other processes");
  const CurrentDevice current(pointer.device);
  const BesideCapture beside;
  int legacy = 0;
  CUmemoryPool pool = nullptr;
  CUpointer_attribute wanted[] = {CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
  void* answers[] = {&legacy, &pool};
  check("cuPointerGetAttributes",
        driver().pointer_get_attributes(2, wanted, answers, reinterpret_cast<CUdeviceptr>(address)));
  if (pool)
    throw sdk::Error(TUTTI_NOT_SUPPORTED,
                     "export_memory: memory of a pool (cudaMallocAsync) is not mapped by other processes; use "
                     "cudaMalloc, or cuMemCreate with CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR");
  Exported exported{};
  exported.process = this_process();
  int fd = -1;
  if (legacy) {
    check("cudaIpcGetMemHandle", cudaIpcGetMemHandle(&exported.handle, pointer.base));
  } else {
    // The address distinguishes it from others.
    std::memcpy(&exported.handle, &pointer.base, sizeof pointer.base);
    fd = export_descriptor(pointer.base);
  }
  memory = {};
  memory.form = legacy ? legacy_handle : by_descriptor;
  memory.device = pointer.device;
  memory.bytes = pointer.bytes;
  memory.offset = static_cast<uint64_t>(static_cast<const char*>(address) - static_cast<const char*>(pointer.base));
  memory.buffer_id = pointer.buffer_id;
  memory.data_bytes = sizeof exported;
  std::memcpy(memory.data, &exported, sizeof exported);
  return fd;
}

void* import_memory(uint32_t device, const tutti_memory_export& memory, int fd) {
  const bool legacy = memory.form == legacy_handle;
  if ((!legacy && memory.form != by_descriptor) || legacy != (fd < 0) || memory.offset >= memory.bytes ||
      memory.data_bytes != sizeof(Exported))
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "import_memory: form " + std::to_string(memory.form) +
                                                 (fd < 0 ? " without a descriptor" : " with a descriptor") +
                                                 ", offset " + std::to_string(memory.offset) + " of " +
                                                 std::to_string(memory.bytes) +
                                                 " bytes: this is not an export of device cuda");
  Exported exported{};
  std::memcpy(&exported, memory.data, sizeof exported);
  if (exported.process == this_process())
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "import_memory: this process exported it: use the address itself");
  ImportCache::Key key{device, memory.form, exported.process, memory.buffer_id, memory.bytes, {}};
  std::memcpy(key.handle.data(), &exported.handle, sizeof exported.handle);
  return imports().take(key, [&] {
    const CurrentDevice current(device);
    const BesideCapture beside;
    return legacy ? map_legacy(device, exported, memory.bytes) : map_descriptor(device, fd, memory.bytes);
  });
}

void close_import(void* base) { imports().give_back(base, unmap); }

// CU_POINTER_ATTRIBUTE_SYNC_MEMOPS is left alone: it concerns synchronous copies and fills, and whoever exports memory
// touches it in streams only, whose order flags tell.
int export_dmabuf(const void* address, uint64_t bytes, uint64_t& offset) {
  static const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  tutti_pointer pointer{};
  classify(address, pointer);
  const auto begin = reinterpret_cast<uint64_t>(address), base = reinterpret_cast<uint64_t>(pointer.base);
  if (pointer.kind != TUTTI_MEMORY_CUDA || !bytes || bytes > pointer.bytes - (begin - base))
    throw sdk::Error(TUTTI_INVALID_ARGUMENT, "export_dmabuf: the " + std::to_string(bytes) + " bytes at " +
                                                 std::to_string(begin) + " are not in one allocation of device memory");
  if (is_managed(address))
    throw sdk::Error(TUTTI_NOT_SUPPORTED, "export_dmabuf: there is no dma-buf of managed memory (cudaMallocManaged)");
  const CurrentDevice current(pointer.device);
  const BesideCapture beside;
  int able = 0;
  check("cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED)",
        driver().device_get_attribute(&able, CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED,
                                      static_cast<CUdevice>(pointer.device)));
  if (!able)
    throw sdk::Error(TUTTI_NOT_SUPPORTED,
                     "device " + std::to_string(pointer.device) +
                         " makes no dma-bufs (CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED is 0): they need NVIDIA's open "
                         "kernel modules and Linux 5.12 or newer");
  // The driver takes whole pages of the host's size only.
  const uint64_t first = begin / page * page, end = (begin + bytes + page - 1) / page * page;
  int fd = -1;
  if (const CUresult result =
          driver().mem_get_handle_for_range(&fd, first, end - first, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, 0);
      result != CUDA_SUCCESS)
    fail("cuMemGetHandleForAddressRange of " + std::to_string(end - first) + " bytes on device " +
             std::to_string(pointer.device),
         result);
  offset = begin - first;
  return fd;
}

}  // namespace tutti::cuda
