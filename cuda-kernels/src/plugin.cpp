// SPDX-License-Identifier: Apache-2.0
//
// The plugin "cuda-kernels": CUDA's memory and streams.
#include <tutti/sdk/device.hpp>

#include "fused.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace tutti::cuda {
namespace {

struct Cuda {
  static constexpr const char* name = "cuda";
  static constexpr const char* summary = "memory and streams of NVIDIA GPUs";
  using Event = cuda::Event;

  static void query(tutti_device_caps& caps) { cuda::query(caps); }
  static void classify(const void* address, tutti_pointer& pointer) { cuda::classify(address, pointer); }
  static void* allocate(uint32_t device, uint64_t bytes) { return cuda::allocate(device, bytes); }
  static void release(void* address) { cuda::release(address); }
  static void* map_host(void* address, uint64_t bytes) { return cuda::map_host(address, bytes); }
  static void unmap_host(void* address) { cuda::unmap_host(address); }
  static void enable_peer(uint32_t device, uint32_t peer) { cuda::enable_peer(device, peer); }
  static int export_memory(const void* address, tutti_memory_export& memory) {
    return cuda::export_memory(address, memory);
  }
  static void* import_memory(uint32_t device, const tutti_memory_export& memory, int fd) {
    return cuda::import_memory(device, memory, fd);
  }
  static void close_import(void* base) { cuda::close_import(base); }
  static int export_dmabuf(const void* address, uint64_t bytes, uint64_t& offset) {
    return cuda::export_dmabuf(address, bytes, offset);
  }
  static void identify(uint32_t device, uint8_t* id) { cuda::identify(device, id); }
  static void describe(uint32_t device, tutti_device_facts& facts) { cuda::describe(device, facts); }
  static void prepare(uint32_t device) { cuda::prepare(device); }
  static void* create_stream(uint32_t device) { return cuda::create_stream(device); }
  static void destroy_stream(void* stream) { cuda::destroy_stream(stream); }
  static void stream_state(void* stream, uint32_t& device, uint64_t& flags) {
    cuda::stream_state(stream, device, flags);
  }
  static Event* create_event(uint32_t device) { return cuda::create_event(device); }
  static void destroy_event(Event* event) { cuda::destroy_event(event); }
  static bool query_event(Event* event) { return cuda::query_event(event); }
  static void enqueue(void* stream, std::span<const tutti_command> commands) { cuda::enqueue(stream, commands); }
  static void enqueue_fused(void* stream, std::span<const tutti_command> commands) {
    cuda::enqueue_fused(stream, commands);
  }
  static void query_executor(uint32_t device, tutti_executor_caps& caps) {
    if (!cuda::is_patient(device)) return;
    caps.max_fused_commands = cuda::most_fused_commands;
    caps.max_fused_bytes = cuda::most_fused_bytes;
  }
};

constexpr tutti_device device = sdk::make_device<Cuda>();
constexpr tutti_executor executor = sdk::make_executor<Cuda>();

}  // namespace
}  // namespace tutti::cuda

TUTTI_PLUGIN(cuda_kernels, "cuda", "0.1.0", "Tutti", "Apache-2.0", "memory and streams of NVIDIA GPUs",
             {TUTTI_DEVICE_ID, &tutti::cuda::device}, {TUTTI_EXECUTOR_ID, &tutti::cuda::executor});
