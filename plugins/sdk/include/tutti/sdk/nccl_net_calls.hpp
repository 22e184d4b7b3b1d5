// SPDX-License-Identifier: Apache-2.0
//
// The functions of a network plugin of NCCL, called alike in every version. Nothing is checked here.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include "nccl_net.hpp"

namespace tutti::nccl {

// The answer of getProperties. Fields that a version lacks are 0.
struct Description {
  const char *name, *pci_path;
  int pointers, speed;  // Pointer; Mbit/s
  float latency;        // us
  int max_comms, max_receives;
  size_t max_message;
};

// Before version 11 there are no contexts: `context` is ignored, and init may be called once in a process.
class Calls {
 public:
  static constexpr int kMostInGroup = 32;

  virtual ~Calls() = default;
  virtual int version() const = 0;
  virtual const char* name() const = 0;
  // The first mandatory function that the table lacks, by NCCL's name; nullptr: none.
  virtual const char* missing() const = 0;
  virtual bool has_flush() const = 0;
  virtual bool has_dma_buf() const = 0;
  virtual bool can_fuse(size_t devices) const = 0;

  virtual Result init(void** context, uint64_t communicator, CommConfig*, Logger, ProfilerCallback) const = 0;
  virtual Result finalize(void* context) const = 0;
  virtual Result devices(int* n) const = 0;
  virtual Result describe(int device, Description*) const = 0;
  // Where can_fuse(devices.size()).
  virtual Result fuse(std::span<const int> devices, int* made) const = 0;
  virtual Result listen(void* context, int device, void* handle, void** listener) const = 0;
  virtual Result connect(void* context, int device, CommConfig*, void* handle, void** comm) const = 0;
  virtual Result accept(void* listener, void** comm) const = 0;
  virtual Result register_memory(void* comm, void* data, size_t bytes, int type, void** memory) const = 0;
  virtual Result register_dma_buf(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                                  void** memory) const = 0;
  virtual Result deregister_memory(void* comm, void* memory) const = 0;
  virtual Result send(void* comm, void* data, size_t bytes, int tag, void* memory, void** request) const = 0;
  // At most kMostInGroup.
  virtual Result receive(void* comm, int n, void** data, const size_t* bytes, int* tags, void** memory,
                         void** request) const = 0;
  virtual Result flush(void* comm, int n, void** data, int* bytes, void** memory, void** request) const = 0;
  virtual Result test(void* request, int* done, int* bytes) const = 0;
  virtual Result close_send(void* comm) const = 0;
  virtual Result close_receive(void* comm) const = 0;
  virtual Result close_listen(void* listener) const = 0;
};

template <int V>
class CallsOf final : public Calls {
  using Types = Signatures<V>;

 public:
  explicit CallsOf(const Table<V>& table) : t_(table) {}
  int version() const override { return V; }
  const char* name() const override { return t_.name; }
  const char* missing() const override {
    const std::pair<const char*, bool> needed[] = {
        {"name", t_.name},         {"init", t_.init},           {"devices", t_.devices},
        {"getProperties", t_.get_properties},                   {"listen", t_.listen},
        {"connect", t_.connect},   {"accept", t_.accept},       {"regMr", t_.register_memory},
        {"deregMr", t_.deregister_memory},                      {"isend", t_.send},
        {"irecv", t_.receive},     {"test", t_.test},           {"closeSend", t_.close_send},
        {"closeRecv", t_.close_receive},                        {"closeListen", t_.close_listen}};
    for (const auto& [name, there] : needed)
      if (!there) return name;
    if constexpr (V >= 11)
      if (!t_.finalize) return "finalize";
    return nullptr;
  }
  bool has_flush() const override { return t_.flush; }
  bool has_dma_buf() const override { return t_.register_dma_buf; }
  bool can_fuse([[maybe_unused]] size_t n) const override {
    if constexpr (V >= 9)
      return t_.make_virtual_device && n <= std::size(Fused{}.devices);
    else
      return false;
  }

  Result init([[maybe_unused]] void** context, [[maybe_unused]] uint64_t communicator,
              [[maybe_unused]] CommConfig* config, Logger logger,
              [[maybe_unused]] ProfilerCallback profiler) const override {
    if constexpr (V >= 11)
      return t_.init(context, communicator, config, logger, profiler);
    else if constexpr (V == 10)
      return t_.init(logger, profiler);
    else
      return t_.init(logger);
  }
  Result finalize([[maybe_unused]] void* context) const override {
    if constexpr (V >= 11)
      if (t_.finalize) return t_.finalize(context);
    return Result::kSuccess;
  }
  Result devices(int* n) const override { return t_.devices(n); }
  Result describe(int device, Description* d) const override {
    Properties<V> p{};
    const Result result = t_.get_properties(device, &p);
    *d = {p.name, p.pci_path, p.pointers, p.speed, p.latency, p.max_comms, p.max_receives, 0};
    if constexpr (V >= 9) d->max_message = p.max_message;
    return result;
  }
  Result fuse([[maybe_unused]] std::span<const int> devices, [[maybe_unused]] int* made) const override {
    if constexpr (V >= 9) {
      Fused of{};
      of.n = static_cast<int>(devices.size());
      std::ranges::copy(devices, of.devices);
      return t_.make_virtual_device(made, &of);
    } else {
      return Result::kInvalidUsage;
    }
  }
  Result listen([[maybe_unused]] void* context, int device, void* handle, void** listener) const override {
    if constexpr (V >= 11)
      return t_.listen(context, device, handle, listener);
    else
      return t_.listen(device, handle, listener);
  }
  Result connect([[maybe_unused]] void* context, int device, [[maybe_unused]] CommConfig* config, void* handle,
                 void** comm) const override {
    [[maybe_unused]] void* offload = nullptr;
    if constexpr (V >= 11)
      return t_.connect(context, device, handle, comm, &offload);
    else if constexpr (V == 10)
      return t_.connect(device, config, handle, comm, &offload);
    else if constexpr (V >= 7)
      return t_.connect(device, handle, comm, &offload);
    else
      return t_.connect(device, handle, comm);
  }
  Result accept(void* listener, void** comm) const override {
    [[maybe_unused]] void* offload = nullptr;
    if constexpr (V >= 7)
      return t_.accept(listener, comm, &offload);
    else
      return t_.accept(listener, comm);
  }
  Result register_memory(void* comm, void* data, size_t bytes, int type, void** memory) const override {
    return t_.register_memory(comm, data, static_cast<typename Types::RegisteredBytes>(bytes), type, memory);
  }
  Result register_dma_buf(void* comm, void* data, size_t bytes, int type, uint64_t offset, int fd,
                          void** memory) const override {
    return t_.register_dma_buf(comm, data, bytes, type, offset, fd, memory);
  }
  Result deregister_memory(void* comm, void* memory) const override { return t_.deregister_memory(comm, memory); }
  Result send(void* comm, void* data, size_t bytes, int tag, void* memory, void** request) const override {
    const auto size = static_cast<typename Types::Bytes>(bytes);
    if constexpr (V >= 10)
      return t_.send(comm, data, size, tag, memory, nullptr, request);
    else
      return t_.send(comm, data, size, tag, memory, request);
  }
  Result receive(void* comm, int n, void** data, const size_t* bytes, int* tags, void** memory,
                 void** request) const override {
    std::array<typename Types::Bytes, kMostInGroup> sizes{};
    std::transform(bytes, bytes + n, sizes.begin(), [](size_t b) { return static_cast<typename Types::Bytes>(b); });
    [[maybe_unused]] std::array<void*, kMostInGroup> profiled{};
    if constexpr (V >= 10)
      return t_.receive(comm, n, data, sizes.data(), tags, memory, profiled.data(), request);
    else
      return t_.receive(comm, n, data, sizes.data(), tags, memory, request);
  }
  Result flush(void* comm, int n, void** data, int* bytes, void** memory, void** request) const override {
    return t_.flush(comm, n, data, bytes, memory, request);
  }
  Result test(void* request, int* done, int* bytes) const override { return t_.test(request, done, bytes); }
  Result close_send(void* comm) const override { return t_.close_send(comm); }
  Result close_receive(void* comm) const override { return t_.close_receive(comm); }
  Result close_listen(void* listener) const override { return t_.close_listen(listener); }

 private:
  using Fused = std::conditional_t<(V < 12), VirtualDevice<9>, VirtualDevice<12>>;
  const Table<V>& t_;
};

// The table of version `wanted` (0: the newest) as `symbol(version)` finds it; nullptr: there is none.
template <int V = kNewest, typename Symbol>
std::unique_ptr<Calls> find_calls(int wanted, const Symbol& symbol) {
  if (wanted == 0 || wanted == V)
    if (const void* table = symbol(V)) return std::make_unique<CallsOf<V>>(*static_cast<const Table<V>*>(table));
  if constexpr (V > kOldest)
    return find_calls<V - 1>(wanted, symbol);
  else
    return nullptr;
}

// "ncclNetPlugin_v5, ncclNetPlugin_v8": the tables of any version that `symbol(version)` finds.
template <typename Symbol>
std::string exported_tables(const Symbol& symbol) {
  std::string text;
  for (int version = 1; version < 32; ++version)
    if (symbol(version)) text += (text.empty() ? "ncclNetPlugin_v" : ", ncclNetPlugin_v") + std::to_string(version);
  return text;
}

}  // namespace tutti::nccl
