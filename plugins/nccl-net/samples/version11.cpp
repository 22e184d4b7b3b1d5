// SPDX-License-Identifier: Apache-2.0
//
// The sample as a plugin of version 11: each communicator has a context, and adapters can be joined.
#include <atomic>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "sockets.hpp"

namespace {

using namespace tutti::nccl;

struct Context {
  Logger say;
  int traffic_class;
};
std::atomic<int> virtual_devices{0};
char name[] = "sample-11";
// The largest message: maxP2pBytes.
size_t most_bytes() {
  const std::string_view text = [](const char* set) { return set ? set : ""; }(std::getenv("SAMPLE_NET_MOST_BYTES"));
  size_t bytes = size_t{1} << 30;
  std::from_chars(text.data(), text.data() + text.size(), bytes);
  return bytes;
}

Table<11> make() {
  Table<11> t{};
  t.name = "sample";
  t.init = [](void** context, uint64_t communicator, CommConfig* config, Logger logger, ProfilerCallback) {
    *context = new Context{logger, config ? config->traffic_class : -1};
    logger(kLogInfo, 16, __FILE__, __LINE__, "sockets, version %d, communicator %llx", 11,
           static_cast<unsigned long long>(communicator));
    return Result::kSuccess;
  };
  t.devices = [](int* n) {
    *n = 2 + virtual_devices;
    return Result::kSuccess;
  };
  t.get_properties = [](int device, Properties<11>* p) {
    if (device < 0 || device >= 2 + virtual_devices) return Result::kInvalidArgument;
    *p = {};
    p->name = name;
    p->guid = static_cast<uint64_t>(device);
    p->pointers = kHostPointer | kCudaPointer | kDmaBuf;
    p->speed = device < 2 ? 10'000 : 20'000;
    p->latency = 12;
    p->max_comms = 1 << 16;
    p->max_receives = 1;
    p->max_message = most_bytes();
    return Result::kSuccess;
  };
  t.listen = [](void* context, int, void* handle, void** listener) {
    return context ? sample::listen(handle, listener) : Result::kInternalError;
  };
  t.connect = [](void* context, int, void* handle, void** comm, void**) {
    return context ? sample::connect(handle, comm) : Result::kInternalError;
  };
  t.accept = [](void* listener, void** comm, void**) { return sample::accept(listener, comm); };
  t.register_memory = [](void*, void* data, size_t bytes, int type, void** memory) {
    return sample::register_memory(data, bytes, type, memory);
  };
  t.register_dma_buf = [](void*, void* data, size_t bytes, int, uint64_t offset, int fd, void** memory) {
    return sample::register_dma_buf(data, bytes, offset, fd, memory);
  };
  t.deregister_memory = [](void*, void* memory) { return sample::deregister_memory(memory); };
  t.send = [](void* comm, void* data, size_t bytes, int tag, void* memory, void*, void** request) {
    if (bytes > most_bytes()) return Result::kInvalidArgument;
    return sample::send(*static_cast<sample::Comm*>(comm), data, bytes, tag, memory, request);
  };
  t.receive = [](void* comm, int n, void** data, size_t* bytes, int* tags, void** memory, void**, void** request) {
    std::vector<sample::Piece> pieces;
    for (int i = 0; i < n; ++i) pieces.push_back({static_cast<char*>(data[i]), bytes[i], tags[i]});
    return sample::receive(*static_cast<sample::Comm*>(comm), std::move(pieces), memory, request);
  };
  t.flush = [](void*, int, void**, int*, void**, void** request) {
    *request = nullptr;
    return Result::kSuccess;
  };
  t.test = sample::test;
  t.close_send = sample::close;
  t.close_receive = sample::close;
  t.close_listen = sample::close_listen;
  t.make_virtual_device = [](int* device, VirtualDevice<9>* made_of) {
    if (made_of->n < 1) return Result::kInvalidArgument;
    *device = 2 + virtual_devices++;
    return Result::kSuccess;
  };
  t.finalize = [](void* context) {
    delete static_cast<Context*>(context);
    return Result::kSuccess;
  };
  return t;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Table<11> ncclNetPlugin_v11 = make();
