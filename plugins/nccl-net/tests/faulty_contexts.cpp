// SPDX-License-Identifier: Apache-2.0
//
// The sample of version 11 with one fault, which TUTTI_MUTANT names, in contexts, dma-bufs or the largest message.
#include "fault.hpp"

#define ncclNetPlugin_v11 healthy_table
#include "../samples/version11.cpp"
#undef ncclNetPlugin_v11

namespace {

using tutti::nccl::sample::fault;
constexpr size_t kMostBytes = size_t{3} << 20;
int communicators = 0;
bool has_finalized = false;

Table<11> make_faulty() {
  Table<11> t = healthy_table;
  t.init = [](void** context, uint64_t communicator, CommConfig* config, Logger logger, ProfilerCallback callback) {
    if (++communicators > 1 && fault("init-once")) return Result::kInternalError;
    return healthy_table.init(context, communicator, config, logger, callback);
  };
  t.get_properties = [](int device, Properties<11>* p) {
    const Result result = healthy_table.get_properties(device, p);
    p->max_message = fault("no-largest") ? 0 : kMostBytes;
    return result;
  };
  t.send = [](void* comm, void* data, size_t bytes, int tag, void* memory, void* handle, void** request) {
    if (bytes >= kMostBytes && fault("largest-refused")) return Result::kInvalidArgument;
    return healthy_table.send(comm, data, bytes, tag, memory, handle, request);
  };
  t.register_dma_buf = [](void*, void* data, size_t bytes, int, uint64_t offset, int fd, void** memory) {
    return sample::register_dma_buf(data, bytes, fault("dma-buf-offset-ignored") ? 0 : offset, fd, memory);
  };
  t.test = [](void* request, int* done, int* bytes) {
    if (has_finalized && fault("finalize-ends-all")) return Result::kInternalError;
    return healthy_table.test(request, done, bytes);
  };
  t.finalize = [](void* context) {
    has_finalized = true;
    const Result result = healthy_table.finalize(context);
    return fault("finalize-fails") ? Result::kSystemError : result;
  };
  return t;
}

}  // namespace

extern "C" __attribute__((visibility("default"))) const Table<11> ncclNetPlugin_v11 = make_faulty();
