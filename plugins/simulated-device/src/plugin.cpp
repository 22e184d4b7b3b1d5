// SPDX-License-Identifier: Apache-2.0
//
// The plugin "simulated": a device whose streams are threads.
#include <string>
#include <tutti/sdk/arithmetic.hpp>
#include <tutti/sdk/device.hpp>
#include <tutti/sdk/exact_sum.hpp>

#include "hazards.hpp"
#include "memory.hpp"
#include "stream.hpp"

namespace tutti::simulated {
namespace {

struct Simulated {
  static constexpr const char* name = device_name;
  static constexpr const char* summary = "host memory and threads in the place of a device: for tests";
  using Event = simulated::Event;

  static void query(tutti_device_caps& caps) {
    has(Hazard::alloc);  // an unknown name is an error here already
    caps.memory_kind = simulated::memory_kind();
    caps.devices = device_count();
    caps.flags = TUTTI_DEVICE_EXPORTS;
    caps.dtypes = sdk::all_dtypes();
    caps.ops = sdk::all_folds();
    caps.exact_dtypes = sdk::exact_sum_dtypes();
  }
  static void classify(const void* address, tutti_pointer& pointer) {
    launches().queries.fetch_add(1, std::memory_order_relaxed);
    simulated::classify(address, pointer);
  }
  static void* allocate(uint32_t device, uint64_t bytes) {
    check_device(device);
    synchronise(Hazard::alloc, device);
    return simulated::allocate(device, bytes);
  }
  static void release(void* address) {
    synchronise(Hazard::free, device_of(address));
    simulated::release(address);
  }
  static void* map_host(void* address, uint64_t bytes) {
    synchronise(Hazard::registering, all_devices);
    simulated::map_host(address, bytes);
    return address;
  }
  static void unmap_host(void* address) {
    synchronise(Hazard::registering, all_devices);
    simulated::unmap_host(address);
  }
  static void enable_peer(uint32_t device, uint32_t peer) {
    simulated::enable_peer(device, peer);
    synchronise(Hazard::import, device);
  }
  static int export_memory(const void* address, tutti_memory_export& memory) {
    return simulated::export_memory(address, memory);
  }
  static void* import_memory(uint32_t device, const tutti_memory_export& memory, int fd) {
    check_device(device);
    synchronise(Hazard::import, device);
    return simulated::import_memory(device, memory, fd);
  }
  static void close_import(void* base) {
    synchronise(Hazard::import, device_of(base));
    simulated::close_import(base);
  }
  static int export_dmabuf(const void* address, uint64_t bytes, uint64_t& offset) {
    return simulated::export_dmabuf(address, bytes, offset);
  }
  static void identify(uint32_t device, uint8_t* id) { simulated::identify(device, id); }
  static void describe(uint32_t device, tutti_device_facts& facts) { simulated::describe(device, facts); }
  static void prepare(uint32_t device) {
    check_device(device);
    load_all(device);
  }
  static void* create_stream(uint32_t device) { return simulated::create_stream(device); }
  static void destroy_stream(void* stream) { simulated::destroy_stream(stream); }
  static void stream_state(void* stream, uint32_t& device, uint64_t& flags) {
    device = stream_device(stream);
    flags = is_capturing(stream) ? uint64_t{TUTTI_STREAM_CAPTURING} : 0;
    flags |= uint64_t{stream_number(stream)} << 32;
  }
  static Event* create_event(uint32_t device) {
    check_device(device);
    auto* event = new Event();
    event->device = device;
    return event;
  }
  static void destroy_event(Event* event) { delete event; }
  static bool query_event(Event* event) { return simulated::query(*event); }
  static void enqueue(void* stream, std::span<const tutti_command> commands) { simulated::enqueue(stream, commands); }
  static void enqueue_fused(void* stream, std::span<const tutti_command> commands) {
    simulated::enqueue_fused(stream, commands);
  }
  static void query_executor(uint32_t device, tutti_executor_caps& caps) {
    check_device(device);
    caps.max_fused_commands = most_fused_commands();
    caps.max_fused_bytes = caps.max_fused_commands ? most_fused_bytes : 0;
  }
};

// Functions of the device's own, like the graphs of real devices: for applications and tests, never for the library.
struct Graphs {
  uint32_t struct_size;
  uint32_t reserved;
  tutti_status (*begin)(void* const* streams, uint64_t n, void** graph);
  tutti_status (*end)(void* graph);
  tutti_status (*launch)(void* graph);
  void (*destroy)(void* graph);
};
constexpr Graphs graphs{
    sizeof(Graphs),
    0,
    [](void* const* streams, uint64_t n, void** graph) {
      return sdk::guard([&] { *graph = begin_capture({streams, n}); });
    },
    [](void* graph) { return sdk::guard([&] { end_capture(static_cast<Graph*>(graph)); }); },
    [](void* graph) { return sdk::guard([&] { launch(static_cast<Graph*>(graph)); }); },
    [](void* graph) { destroy_graph(static_cast<Graph*>(graph)); },
};

// Memory that an application has by other ways than allocate(): for tests.
struct Memory {
  uint32_t struct_size;
  uint32_t reserved;
  // Memory that the device and the processors share, as cudaMallocManaged gives. Ended by release().
  tutti_status (*managed)(uint32_t device, uint64_t bytes, void** address);
  // `n` allocations of so many bytes, multiples of a page, one behind the other in one range of addresses. Each is
  // ended by release() of its own address.
  tutti_status (*ranges)(uint32_t device, uint64_t n, uint64_t bytes, void** address);
};
constexpr Memory memory{
    sizeof(Memory),
    0,
    [](uint32_t device, uint64_t bytes, void** address) {
      return sdk::guard([&] { *address = allocate_managed(device, bytes); });
    },
    [](uint32_t device, uint64_t n, uint64_t bytes, void** address) {
      return sdk::guard([&] { *address = allocate_ranges(device, n, bytes); });
    },
};

constexpr tutti_device device = sdk::make_device<Simulated>();
constexpr tutti_executor executor = sdk::make_executor<Simulated>();

}  // namespace
}  // namespace tutti::simulated

TUTTI_PLUGIN(simulated_device, tutti::simulated::device_name, "0.1.0", "Tutti", "Apache-2.0",
             "a device whose streams are threads, for tests", {TUTTI_DEVICE_ID, &tutti::simulated::device},
             {TUTTI_EXECUTOR_ID, &tutti::simulated::executor},
             {tutti::simulated::Launches::id, &tutti::simulated::launches()},
             {"tutti.simulated_graphs/1", &tutti::simulated::graphs},
             {"tutti.simulated_memory/1", &tutti::simulated::memory});
