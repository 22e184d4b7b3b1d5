// SPDX-License-Identifier: Apache-2.0
//
// A device as one small C++ class; make_device and make_executor turn it into the two tables of tutti/plugin/device.h.
// device.h says what each function must do; here is its C++ shape. Everything may throw sdk::Error (or anything else).
//
//   struct MyDevice {
//     static constexpr const char* name = "mine";
//     static constexpr const char* summary = "memory and streams of my card";
//     static void query(tutti_device_caps& caps);
//     static void classify(const void* address, tutti_pointer& pointer);
//     static void* allocate(uint32_t device, uint64_t bytes);
//     static void release(void* address);
//     static void* map_host(void* address, uint64_t bytes);
//     static void unmap_host(void* address);
//     static void enable_peer(uint32_t device, uint32_t peer);
//     static int export_memory(const void* address, tutti_memory_export& memory);     // optional, with the next two
//     static void* import_memory(uint32_t device, const tutti_memory_export& memory, int fd);
//     static void close_import(void* base);
//     static int export_dmabuf(const void* address, uint64_t bytes, uint64_t& offset);    // optional: the descriptor
//     static void identify(uint32_t device, uint8_t* id);                              // optional
//     static void describe(uint32_t device, tutti_device_facts& facts);                // optional; zeros, numa -1
//     static void prepare(uint32_t device);
//     static void* create_stream(uint32_t device);                                     // optional, with the next
//     static void destroy_stream(void* stream);
//     static void stream_state(void* stream, uint32_t& device, uint64_t& flags);
//     struct Event;
//     static Event* create_event(uint32_t device);
//     static void destroy_event(Event* event);
//     static bool query_event(Event* event);                                               // true: done
//     static void enqueue(void* stream, std::span<const tutti_command> commands);      // all or none
//     static void enqueue_fused(void* stream, std::span<const tutti_command> commands);  // optional, with the next
//     static void query_executor(uint32_t device, tutti_executor_caps& caps);
//   };
#pragma once

#include <tutti/plugin/device.h>

#include <tutti/sdk/plugin.hpp>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

template <typename T>
struct DeviceTable {
  using Event = typename T::Event;
  static constexpr bool exports = requires(void* base) { T::close_import(base); };
  static constexpr bool exports_dmabuf = requires(uint64_t & offset) { T::export_dmabuf(nullptr, 0, offset); };
  static constexpr bool identifies = requires(uint8_t * id) { T::identify(0u, id); };
  static constexpr bool describes = requires(tutti_device_facts & facts) { T::describe(0u, facts); };
  static constexpr bool makes_streams = requires(void* stream) { T::destroy_stream(stream); };
  static constexpr bool fuses = requires(std::span<const tutti_command> list) { T::enqueue_fused(nullptr, list); };
  static Event* event(tutti_event* handle) { return reinterpret_cast<Event*>(handle); }

  static tutti_status query(void*, tutti_device_caps* caps) {
    return guard([&] { fill_sized(caps, [](tutti_device_caps& full) { T::query(full); }); });
  }
  static tutti_status classify(void*, const void* address, tutti_pointer* pointer) {
    return guard([&] { fill_sized(pointer, [&](tutti_pointer& full) { T::classify(address, full); }); });
  }
  static tutti_status allocate(void*, uint32_t device, uint64_t bytes, void** address) {
    return guard([&] { *address = T::allocate(device, bytes); });
  }
  static tutti_status release(void*, void* address) {
    return guard([&] { T::release(address); });
  }
  static tutti_status map_host(void*, void* address, uint64_t bytes, void** device_address) {
    return guard([&] { *device_address = T::map_host(address, bytes); });
  }
  static tutti_status unmap_host(void*, void* address) {
    return guard([&] { T::unmap_host(address); });
  }
  static tutti_status enable_peer(void*, uint32_t device, uint32_t peer) {
    return guard([&] { T::enable_peer(device, peer); });
  }
  static tutti_status export_memory(void*, const void* address, tutti_memory_export* memory, int32_t* fd) {
    return guard([&] {
      if constexpr (exports) *fd = T::export_memory(address, *memory);
    });
  }
  static tutti_status import_memory(void*, uint32_t device, const tutti_memory_export* memory, int32_t fd,
                                    void** base) {
    return guard([&] {
      if constexpr (exports) *base = T::import_memory(device, *memory, fd);
    });
  }
  static tutti_status close_import(void*, void* base) {
    return guard([&] {
      if constexpr (exports) T::close_import(base);
    });
  }
  static tutti_status export_dmabuf(void*, const void* address, uint64_t bytes, int32_t* fd, uint64_t* offset) {
    return guard([&] {
      if constexpr (exports_dmabuf) *fd = T::export_dmabuf(address, bytes, *offset);
    });
  }
  static tutti_status identify(void*, uint32_t device, uint8_t* id) {
    return guard([&] {
      if constexpr (identifies) T::identify(device, id);
    });
  }
  static tutti_status describe(void*, uint32_t device, tutti_device_facts* facts) {
    return guard([&] {
      if constexpr (describes)
        fill_sized(facts, [device](tutti_device_facts& full) {
          full.numa = -1;
          T::describe(device, full);
        });
    });
  }
  static tutti_status prepare(void*, uint32_t device) {
    return guard([&] { T::prepare(device); });
  }
  static tutti_status create_stream(void*, uint32_t device, void** stream) {
    return guard([&] {
      if constexpr (makes_streams) *stream = T::create_stream(device);
    });
  }
  static tutti_status destroy_stream(void*, void* stream) {
    return guard([&] {
      if constexpr (makes_streams) T::destroy_stream(stream);
    });
  }
  static tutti_status stream_state(void*, void* stream, uint32_t* device, uint64_t* flags) {
    return guard([&] { T::stream_state(stream, *device, *flags); });
  }
  static tutti_status create_event(void*, uint32_t device, tutti_event** out) {
    return guard([&] { *out = reinterpret_cast<tutti_event*>(T::create_event(device)); });
  }
  static void destroy_event(void*, tutti_event* handle) { T::destroy_event(event(handle)); }
  static tutti_status query_event(void*, tutti_event* handle) {
    return guard([&]() -> tutti_status { return T::query_event(event(handle)) ? TUTTI_OK : TUTTI_AGAIN; });
  }
  static tutti_status enqueue(void*, void* stream, const tutti_command* commands, uint32_t n) {
    return guard([&] { T::enqueue(stream, {commands, n}); });
  }
  static tutti_status enqueue_fused(void*, void* stream, const tutti_command* commands, uint32_t n) {
    return guard([&] {
      if constexpr (fuses) T::enqueue_fused(stream, {commands, n});
    });
  }
  static tutti_status query_executor(void*, uint32_t device, tutti_executor_caps* caps) {
    return guard([&] {
      if constexpr (fuses) fill_sized(caps, [&](tutti_executor_caps& full) { T::query_executor(device, full); });
    });
  }
};

template <typename T>
constexpr tutti_device make_device() {
  using Table = DeviceTable<T>;
  return {sizeof(tutti_device),
          TUTTI_DEVICE_STAMP,
          nullptr,
          T::name,
          T::summary,
          Table::query,
          Table::classify,
          Table::allocate,
          Table::release,
          Table::map_host,
          Table::unmap_host,
          Table::enable_peer,
          Table::exports ? Table::export_memory : nullptr,
          Table::exports ? Table::import_memory : nullptr,
          Table::exports ? Table::close_import : nullptr,
          Table::exports_dmabuf ? Table::export_dmabuf : nullptr,
          Table::identifies ? Table::identify : nullptr,
          Table::describes ? Table::describe : nullptr};
}

template <typename T>
constexpr tutti_executor make_executor() {
  using Table = DeviceTable<T>;
  return {sizeof(tutti_executor),
          TUTTI_EXECUTOR_STAMP,
          nullptr,
          Table::prepare,
          Table::makes_streams ? Table::create_stream : nullptr,
          Table::makes_streams ? Table::destroy_stream : nullptr,
          Table::stream_state,
          Table::create_event,
          Table::destroy_event,
          Table::query_event,
          Table::enqueue,
          Table::fuses ? Table::enqueue_fused : nullptr,
          Table::fuses ? Table::query_executor : nullptr};
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
