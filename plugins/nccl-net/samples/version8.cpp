// SPDX-License-Identifier: Apache-2.0
//
// The sample as a plugin of version 8: sizes are ints, and one init serves the process.
#include "sockets.hpp"

namespace {

using namespace tutti::nccl;

Logger say = nullptr;
char name[] = "sample-8";

Table<8> make() {
  Table<8> t{};
  t.name = "sample";
  t.init = [](Logger logger) {
    say = logger;
    say(kLogInfo, 16, __FILE__, __LINE__, "sockets, version %d", 8);
    return Result::kSuccess;
  };
  t.devices = [](int* n) {
    *n = 2;
    return Result::kSuccess;
  };
  t.get_properties = [](int device, Properties<8>* p) {
    if (device < 0 || device > 1) return Result::kInvalidArgument;
    *p = {};
    p->name = name;
    p->guid = static_cast<uint64_t>(device);
    p->pointers = kHostPointer | kCudaPointer;
    p->speed = 10'000;
    p->latency = 12;
    p->max_comms = 1 << 16;
    p->max_receives = sample::kMostInGroup;
    return Result::kSuccess;
  };
  t.listen = [](int, void* handle, void** listener) { return sample::listen(handle, listener); };
  t.connect = [](int, void* handle, void** comm, void**) { return sample::connect(handle, comm); };
  t.accept = [](void* listener, void** comm, void**) { return sample::accept(listener, comm); };
  t.register_memory = [](void*, void* data, size_t bytes, int type, void** memory) {
    return sample::register_memory(data, bytes, type, memory);
  };
  t.deregister_memory = [](void*, void* memory) { return sample::deregister_memory(memory); };
  t.send = [](void* comm, void* data, int bytes, int tag, void* memory, void** request) {
    return sample::send(*static_cast<sample::Comm*>(comm), data, static_cast<size_t>(bytes), tag, memory, request);
  };
  t.receive = [](void* comm, int n, void** data, int* bytes, int* tags, void** memory, void** request) {
    std::vector<sample::Piece> pieces;
    for (int i = 0; i < n; ++i) pieces.push_back({static_cast<char*>(data[i]), static_cast<size_t>(bytes[i]), tags[i]});
    return sample::receive(*static_cast<sample::Comm*>(comm), std::move(pieces), memory, request);
  };
  t.flush = [](void*, int, void**, int*, void**, void** request) {
    *request = nullptr;  // what test has reported lies in memory
    return Result::kSuccess;
  };
  t.test = sample::test;
  t.close_send = sample::close;
  t.close_receive = sample::close;
  t.close_listen = sample::close_listen;
  return t;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Table<8> ncclNetPlugin_v8 = make();
