// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <algorithm>
#include <memory>
#include <string>
#include <tutti/sdk/arithmetic.hpp>
#include <vector>

#include "cuda_error.hpp"
#include "current_device.hpp"
#include "driver.hpp"
#include "fused.hpp"
#include "kernels.hpp"
#include "memory.hpp"

namespace tutti::cuda {

struct Event {
  cudaEvent_t event;
  uint32_t device;
};

namespace {

using sdk::Error;

cudaEvent_t event_of(const tutti_command& command) { return reinterpret_cast<Event*>(command.event)->event; }

// Checks without the device: if one command is wrong, no command of the batch is carried out.
void look_through(std::span<const tutti_command> commands) {
  for (const tutti_command& c : commands) {
    if (c.flags || c.scale)
      throw Error(TUTTI_NOT_SUPPORTED, "a command has flags or a scale, which are not known here");
    switch (c.kind) {
      case TUTTI_COMMAND_COPY:
        if (c.sources != 1)
          throw Error(TUTTI_INVALID_ARGUMENT, "a copy has " + std::to_string(c.sources) + " sources, expected one");
        break;
      case TUTTI_COMMAND_REDUCE:
        if (!sdk::has_fold(c.dtype, c.op) || !c.sources || c.sources > most_sources)
          throw Error(TUTTI_NOT_SUPPORTED, "no reduction of " + std::to_string(c.sources) + " sources of data type " +
                                               std::to_string(c.dtype) + " by operator " + std::to_string(c.op));
        break;
      case TUTTI_COMMAND_WAIT:
      case TUTTI_COMMAND_WRITE:
        if (!c.flag || reinterpret_cast<uintptr_t>(c.flag) % sizeof *c.flag)
          throw Error(TUTTI_INVALID_ARGUMENT, "a flag's address is NULL or not a multiple of 4");
        break;
      case TUTTI_COMMAND_RECORD:
      case TUTTI_COMMAND_AFTER:
        if (!c.event) throw Error(TUTTI_INVALID_ARGUMENT, "a command's event is NULL");
        break;
      default:
        throw Error(TUTTI_NOT_SUPPORTED, "unknown command " + std::to_string(c.kind));
    }
  }
}

CUstreamBatchMemOpParams flag_operation(const tutti_command& c) {
  CUstreamBatchMemOpParams op{};
  if (c.kind == TUTTI_COMMAND_WAIT) {
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = reinterpret_cast<CUdeviceptr>(c.flag);
    op.waitValue.value = c.value;
    op.waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
  } else {
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = reinterpret_cast<CUdeviceptr>(c.flag);
    op.writeValue.value = c.value;
    op.writeValue.flags = CU_STREAM_WRITE_VALUE_DEFAULT;  // with a barrier: all earlier work is visible before it
  }
  return op;
}

}  // namespace

void prepare(uint32_t device) {
  const CurrentDevice current(device);
  const BesideCapture beside;
  check("cudaFree(0), which makes the device's context", cudaFree(nullptr));
  driver();
  load_kernels();
  load_fused();
}

void* create_stream(uint32_t device) {
  const CurrentDevice current(device);
  const BesideCapture beside;
  cudaStream_t stream = nullptr;
  check("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void destroy_stream(void* stream) {
  const CurrentDevice any;
  const BesideCapture beside;
  check("cudaStreamSynchronize", cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
  check("cudaStreamDestroy", cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
}

void stream_state(void* stream, uint32_t& device, uint64_t& flags) {
  int ordinal = 0;
  const auto handle = static_cast<cudaStream_t>(stream);
  if (handle == cudaStreamPerThread)
    throw Error(TUTTI_NOT_SUPPORTED,
                "cudaStreamPerThread is another stream in each thread, and work may be put into a rank's stream by "
                "another thread: pass a stream made by cudaStreamCreate");
  if (stream && handle != cudaStreamLegacy) {
    const CurrentDevice any;
    check("cudaStreamGetDevice", cudaStreamGetDevice(handle, &ordinal));
  } else {
    check("cudaGetDevice", cudaGetDevice(&ordinal));
  }
  device = static_cast<uint32_t>(ordinal);
  flags = 0;
  if (!stream && !has_context(device)) return;  // nothing was given to its default stream yet
  const CurrentDevice current(device);
  cudaStreamCaptureStatus capture{};
  check("cudaStreamIsCapturing", cudaStreamIsCapturing(handle, &capture));
  if (capture == cudaStreamCaptureStatusInvalidated)
    throw Error(TUTTI_INVALID_USAGE, "the stream's capture has been invalidated by an earlier error");
  flags = capture == cudaStreamCaptureStatusActive ? uint64_t{TUTTI_STREAM_CAPTURING} : 0;
}

Event* create_event(uint32_t device) {
  const CurrentDevice current(device);
  const BesideCapture beside;
  auto event = std::make_unique<Event>(Event{nullptr, device});
  check("cudaEventCreateWithFlags", cudaEventCreateWithFlags(&event->event, cudaEventDisableTiming));
  return event.release();
}

void destroy_event(Event* event) {
  const std::unique_ptr<Event> owned(event);
  try {
    const CurrentDevice current(event->device);
    const BesideCapture beside;
    cudaEventDestroy(event->event);
  } catch (const Error&) {  // the driver has gone, and the event with it
  }
}

// By the driver: the runtime would leave "not ready" behind as the thread's last error, over the application's own.
bool query_event(Event* event) {
  const CurrentDevice current(event->device);
  const BesideCapture beside;
  const CUresult state = driver().event_query(event->event);
  if (state == CUDA_ERROR_NOT_READY) return false;
  check("cuEventQuery: earlier work of the stream, a kernel or a copy, has failed", state);
  return true;
}

void enqueue(void* stream, std::span<const tutti_command> commands) {
  look_through(commands);
  uint32_t device = 0;
  uint64_t flags = 0;
  stream_state(stream, device, flags);
  const CurrentDevice current(device);
  for (const tutti_command& c : commands)
    for (uint32_t k = 0; c.src && k < c.sources; ++k) require_readable(device, c.src[k]);
  const auto handle = static_cast<cudaStream_t>(stream);
  std::vector<CUstreamBatchMemOpParams> flag_operations;
  const auto flush = [&] {
    constexpr size_t most = 255;  // what one call takes
    for (size_t at = 0; at < flag_operations.size(); at += most) {
      const size_t n = std::min(most, flag_operations.size() - at);
      if (const CUresult result =
              driver().stream_batch_mem_op(handle, static_cast<unsigned>(n), &flag_operations[at], 0);
          result != CUDA_SUCCESS)
        fail("cuStreamBatchMemOp", result);
    }
    flag_operations.clear();
  };
  for (const tutti_command& c : commands) {
    if (c.kind == TUTTI_COMMAND_WAIT || c.kind == TUTTI_COMMAND_WRITE) {
      flag_operations.push_back(flag_operation(c));
      continue;
    }
    flush();
    if (c.kind == TUTTI_COMMAND_RECORD)
      check("cudaEventRecord", cudaEventRecord(event_of(c), handle));
    else if (c.kind == TUTTI_COMMAND_AFTER)
      check("cudaStreamWaitEvent", cudaStreamWaitEvent(handle, event_of(c), 0));
    else if (c.kind == TUTTI_COMMAND_COPY && !c.dst2 && !(seen_of_host(c.dst) && seen_of_host(c.src[0])))
      check("cudaMemcpyAsync", cudaMemcpyAsync(c.dst, c.src[0], c.count, cudaMemcpyDefault, handle));
    else
      launch(c, handle);
  }
  flush();
}

void enqueue_fused(void* stream, std::span<const tutti_command> commands) {
  look_through(commands);
  const Program program = make_program(commands);
  uint32_t device = 0;
  uint64_t flags = 0;
  stream_state(stream, device, flags);
  const CurrentDevice current(device);
  for (const tutti_command& c : commands)
    for (uint32_t k = 0; c.src && k < c.sources; ++k) require_readable(device, c.src[k]);
  launch(program, device, static_cast<cudaStream_t>(stream));
}

}  // namespace tutti::cuda
