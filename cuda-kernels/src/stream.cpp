// SPDX-License-Identifier: Apache-2.0
#include "stream.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
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
    if (c.flags || c.reserved)
      throw Error(TUTTI_NOT_SUPPORTED, "a command has flags or a reserved field, which are not known here");
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

namespace {

// A stream and a little memory of each kind, for as long as it lives.
struct WarmUp {
  static constexpr size_t bytes = 4096;
  cudaStream_t stream = nullptr;
  void *host = nullptr, *memory[2] = {};
  WarmUp() {
    check("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    check("cudaHostAlloc", cudaHostAlloc(&host, bytes, cudaHostAllocPortable | cudaHostAllocMapped));
    std::memset(host, 0, bytes);
    for (void*& one : memory) check("cudaMalloc", cudaMalloc(&one, bytes));
  }
  WarmUp(const WarmUp&) = delete;
  WarmUp& operator=(const WarmUp&) = delete;
  ~WarmUp() {
    if (stream) cudaStreamDestroy(stream);
    if (host) cudaFreeHost(host);
    for (void* one : memory) cudaFree(one);
  }
  void copy(void* to, const void* from) const {
    check("cudaMemcpyAsync", cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream));
  }
  // Both halves of what orders streams of two processes. Some configurations (WSL 2, virtual GPUs) offer none of it.
  void set_and_await_a_flag() const {
    void* seen = nullptr;
    check("cudaHostGetDevicePointer", cudaHostGetDevicePointer(&seen, host, 0));
    tutti_command flag{};
    flag.flag = static_cast<uint32_t*>(seen);
    flag.value = 1;
    CUstreamBatchMemOpParams operations[2];
    for (const uint32_t k : {0, 1}) {
      flag.kind = k ? TUTTI_COMMAND_WAIT : TUTTI_COMMAND_WRITE;
      operations[k] = flag_operation(flag);
    }
    if (const CUresult result = driver().stream_batch_mem_op(stream, 2, operations, 0); result != CUDA_SUCCESS)
      fail(
          "cuStreamBatchMemOp: streams of this device cannot wait for flags in host memory, by which processes order "
          "theirs",
          result);
  }
};

}  // namespace

// Whatever is used for the first time may wait for the device: kernels are loaded and given local memory at their first
// launch, and the driver has kernels of its own for copies. So everything is used once, with nothing to do.
void prepare(uint32_t device) {
  static std::array<std::once_flag, most_devices> once;
  if (device >= most_devices)
    throw Error(TUTTI_INVALID_ARGUMENT,
                "device " + std::to_string(device) + ": expected a number below " + std::to_string(most_devices));
  std::call_once(once[device], [device] {
    const CurrentDevice current(device);
    const BesideCapture beside;
    check("cudaFree(0), which makes the device's context", cudaFree(nullptr));
    const WarmUp warm;
    launch_all_once(warm.stream);
    launch(Program{}, warm.stream);
    warm.copy(warm.memory[0], warm.host);
    warm.copy(warm.memory[1], warm.memory[0]);
    warm.copy(warm.host, warm.memory[1]);
    warm.set_and_await_a_flag();
    check("cudaStreamSynchronize of the device's first work", cudaStreamSynchronize(warm.stream));
  });
}

void* create_stream(uint32_t device) {
  const CurrentDevice current(device);
  const BesideCapture beside;
  cudaStream_t stream = nullptr;
  check("cudaStreamCreateWithFlags", cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  return stream;
}

void destroy_stream(void* stream) {
  if (driver_is_gone()) return;
  const CurrentDevice any;
  const BesideCapture beside;
  check("cudaStreamSynchronize", cudaStreamSynchronize(static_cast<cudaStream_t>(stream)));
  check("cudaStreamDestroy", cudaStreamDestroy(static_cast<cudaStream_t>(stream)));
}

void stream_state(void* stream, uint32_t& device, uint64_t& flags) {
  const auto handle = static_cast<cudaStream_t>(stream);
  if (handle == cudaStreamPerThread)
    throw Error(TUTTI_NOT_SUPPORTED,
                "cudaStreamPerThread is another stream in each thread, and work may be put into a rank's stream by "
                "another thread: pass a stream made by cudaStreamCreate");
  if (stream && handle != cudaStreamLegacy) {
    const CurrentDevice any;
    device = device_of_stream(handle);
  } else {
    int ordinal = 0;
    check("cudaGetDevice", cudaGetDevice(&ordinal));
    device = static_cast<uint32_t>(ordinal);
  }
  flags = 0;
  if (!stream && !has_context(device)) return;  // nothing was given to its default stream yet
  const CurrentDevice current(device);
  cudaStreamCaptureStatus capture{};
  const cudaError_t told = cudaStreamIsCapturing(handle, &capture);
  // The default stream is not captured, and takes nothing while another stream is: enqueue() will say so.
  if (told == cudaErrorStreamCaptureImplicit) {
    cudaGetLastError();
    capture = cudaStreamCaptureStatusNone;
  } else {
    check("cudaStreamIsCapturing", told);
  }
  if (capture == cudaStreamCaptureStatusInvalidated)
    throw Error(TUTTI_INVALID_USAGE, "the stream's capture has been invalidated by an earlier error");
  if (capture == cudaStreamCaptureStatusActive) {
    flags = TUTTI_STREAM_CAPTURING;  // and no number: cuStreamGetId ends a capture
    return;
  }
  unsigned long long number = 0;
  if (driver().stream_id && driver().stream_id(handle, &number) == CUDA_SUCCESS) flags = number << 32;
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
  if (driver_is_gone()) return true;
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
    else if (c.kind == TUTTI_COMMAND_COPY && !(seen_of_host(c.dst) && seen_of_host(c.src[0])))
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
  if (!is_patient(device))
    throw Error(TUTTI_NOT_SUPPORTED,
                "device " + std::to_string(device) +
                    " ends kernels that run long (it drives a display): none may wait for other processes");
  launch(program, static_cast<cudaStream_t>(stream));
}

}  // namespace tutti::cuda
