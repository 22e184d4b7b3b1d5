// SPDX-License-Identifier: Apache-2.0
//
// A network plugin of NCCL that breaks one rule, which the environment variable FAULTY_NETWORK names whenever the rule
// is at stake.
#include <unistd.h>

#include <cstdlib>
#include <string_view>

#include "../samples/sockets.hpp"

namespace {

using namespace tutti::nccl;

bool fault(std::string_view name) {
  const char* text = std::getenv("FAULTY_NETWORK");
  return text && name == text;
}
Logger say = nullptr;
char name[] = "faulty";

Table<8> make() {
  Table<8> t{};
  t.name = "faulty";
  t.init = [](Logger logger) {
    say = logger;
    return Result::kSuccess;
  };
  t.devices = [](int* n) {
    *n = fault("no adapter") ? 0 : 1;
    return Result::kSuccess;
  };
  t.get_properties = [](int, Properties<8>* p) {
    *p = {};
    p->name = name;
    p->pointers = fault("no host memory") ? kCudaPointer : kHostPointer | (fault("dma-buf") ? kDmaBuf : 0);
    p->max_receives = 1;
    return Result::kSuccess;
  };
  t.listen = [](int, void* handle, void** listener) {
    if (fault("listen fails")) {
      say(kLogWarn, 16, __FILE__, __LINE__, "no port is left on %s", "eth9");
      return Result::kSystemError;
    }
    const Result result = sample::listen(handle, listener);
    if (fault("long handle")) static_cast<char*>(handle)[kHandleBytes] = 1;
    if (fault("no listener")) *listener = nullptr;
    return result;
  };
  t.connect = [](int, void* handle, void** comm, void**) {
    if (fault("connect fails")) return Result::kRemoteError;
    if (fault("never connects")) {
      *comm = nullptr;
      return Result::kSuccess;
    }
    return sample::connect(handle, comm);
  };
  t.accept = [](void* listener, void** comm, void**) { return sample::accept(listener, comm); };
  t.register_memory = [](void*, void* data, size_t bytes, int type, void** memory) {
    if (fault("regMr fails")) return Result::kInternalError;
    return sample::register_memory(data, bytes, type, memory);
  };
  t.deregister_memory = [](void*, void* memory) { return sample::deregister_memory(memory); };
  t.send = [](void* comm, void* data, int bytes, int tag, void* memory, void** request) {
    if (fault("isend fails")) return Result::kSystemError;
    return sample::send(*static_cast<sample::Comm*>(comm), data, static_cast<size_t>(bytes), tag, memory, request);
  };
  t.receive = [](void* comm, int, void** data, int* bytes, int* tags, void** memory, void** request) {
    return sample::receive(*static_cast<sample::Comm*>(comm),
                           {{static_cast<char*>(data[0]), static_cast<size_t>(bytes[0]), tags[0]}}, memory, request);
  };
  t.test = [](void* request, int* done, int* bytes) {
    const Result result = sample::test(request, done, bytes);
    if (*done && fault("size of room")) *bytes = 1 << 20;
    if (*done && fault("size too small")) *bytes = 3;
    if (*done && fault("one byte less")) *bytes -= *bytes > 10'000 ? 1 : 0;
    return result;
  };
  t.close_send = sample::close;
  t.close_receive = sample::close;
  t.close_listen = sample::close_listen;
  return t;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Table<8> ncclNetPlugin_v8 = make();
