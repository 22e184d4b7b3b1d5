// SPDX-License-Identifier: Apache-2.0
//
// The questions of docs/hardware.md that only a driver can answer, each under the name that the page gives it.
#include "probe.hpp"

namespace facts {
namespace {

constexpr std::chrono::milliseconds held(300);
constexpr uint64_t bytes = 1 << 20;

const char* name_of(CUresult result) {
  const char* name = "unknown";
  driver().name(result, &name);
  return name;
}

void* allocate(uint64_t size = bytes) {
  void* made = nullptr;
  require("cudaMalloc", cudaMalloc(&made, size));
  return made;
}

int devices() {
  int count = 0;
  require("cudaGetDeviceCount", cudaGetDeviceCount(&count));
  return count;
}

// A stream that waits until it is let go, `held` from now.
class Waiting {
 public:
  Waiting() : stream_(make_stream()) {
    words_.set(0);
    require("cuStreamWaitValue32", driver().wait(stream_, words_.seen, 1, CU_STREAM_WAIT_VALUE_EQ));
  }
  void let_go_soon() {
    releasing_ = std::thread([this] {
      std::this_thread::sleep_for(held);
      words_.set(1);
    });
  }
  ~Waiting() {
    if (releasing_.joinable()) releasing_.join();
    words_.set(1);
    cudaStreamSynchronize(stream_);
  }

 private:
  Words words_;
  cudaStream_t stream_;
  std::thread releasing_;
};

// About `held`: the call waits for the stream.
template <typename Call>
void timed(const std::string& what, const Call& call) {
  const auto begin = Clock::now();
  const auto result = call();
  const double took = milliseconds(begin);
  cudaGetLastError();
  tell((what + ": ms").c_str(), "%s%s", decimal(took, 2).c_str(),
       static_cast<int>(result) ? " (refused)" : "");
}

void first_copies() {
  void *a = allocate(), *b = allocate(), *host = nullptr;
  require("cudaHostAlloc", cudaHostAlloc(&host, bytes, cudaHostAllocMapped));
  const cudaStream_t other = make_stream();
  Waiting waiting;
  waiting.let_go_soon();
  const auto copy = [&](void* to, void* from) { return cudaMemcpyAsync(to, from, 4096, cudaMemcpyDefault, other); };
  timed("first-copy: device to device beside a stream that waits 300 ms", [&] { return copy(a, b); });
  timed("first-copy: host to device", [&] { return copy(a, host); });
  timed("first-copy: device to host", [&] { return copy(host, a); });
}

void beside_a_free() {
  void *a = allocate(), *b = allocate(), *freed = allocate(64 * bytes);
  const cudaStream_t other = make_stream();
  require("cudaMemcpyAsync", cudaMemcpyAsync(a, b, 4096, cudaMemcpyDefault, other));
  require("cudaStreamSynchronize", cudaStreamSynchronize(other));
  Words words;
  Waiting waiting;
  std::thread freeing([&] { cudaFree(freed); });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  waiting.let_go_soon();
  timed("beside-free: cudaMemcpyAsync while a thread is in cudaFree and a stream waits",
        [&] { return cudaMemcpyAsync(a, b, 4096, cudaMemcpyDefault, other); });
  timed("beside-free: cuStreamWriteValue32",
        [&] { return driver().write(other, words.seen, 5, CU_STREAM_WRITE_VALUE_DEFAULT); });
  freeing.join();
}

void two_devices() {
  if (devices() < 2) return tell("two-devices", "there is one");
  require("cudaSetDevice", cudaSetDevice(1));
  require("cudaFree", cudaFree(nullptr));
  Waiting waiting;
  require("cudaSetDevice", cudaSetDevice(0));
  require("cudaFree", cudaFree(nullptr));
  waiting.let_go_soon();
  void* plain = std::aligned_alloc(page, bytes);
  std::memset(plain, 0, bytes);
  timed("two-devices: cudaHostRegister on device 0 while a stream of device 1 waits",
        [&] { return cudaHostRegister(plain, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped); });
  timed("two-devices: cudaDeviceEnablePeerAccess of 0 to 1", [] { return cudaDeviceEnablePeerAccess(1, 0); });
  void* mine = allocate();
  timed("two-devices: cudaFree on device 0", [&] { return cudaFree(mine); });
}

void handles() {
  const auto number = entry<CUresult (*)(CUstream, unsigned long long*)>("cuStreamGetId", 12000);
  unsigned long long first = 0, second = 0, standard = 0;
  cudaStream_t one = make_stream();
  number(one, &first);
  const void* handle = one;
  require("cudaStreamDestroy", cudaStreamDestroy(one));
  cudaStream_t two = make_stream();
  number(two, &second);
  const CUresult of_default = number(nullptr, &standard);
  tell("handles: a destroyed stream's handle comes again; the two ids", "%s; %llu, %llu", handle == two ? "yes" : "no",
       first, second);
  tell("handles: cuStreamGetId of the default stream", "%s, %llu", name_of(of_default), standard);
}

void captures() {
  cudaStream_t captured = nullptr;
  require("cudaStreamCreate", cudaStreamCreate(&captured));
  cudaEvent_t event = nullptr;
  require("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  require("cudaStreamBeginCapture", cudaStreamBeginCapture(captured, cudaStreamCaptureModeGlobal));
  cudaStreamCaptureStatus state{};
  const cudaError_t asked = cudaStreamIsCapturing(nullptr, &state);
  std::thread([&] {
    cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
    cudaThreadExchangeStreamCaptureMode(&mode);
    tell("captures: cuEventQuery by a thread in relaxed mode", "%s", name_of(driver().query(event)));
    void* memory = nullptr;
    tell("captures: cudaMalloc by that thread", "%s", cudaGetErrorName(cudaMalloc(&memory, 1000)));
  }).join();
  cudaGraph_t graph = nullptr;
  const cudaError_t ended = cudaStreamEndCapture(captured, &graph);
  tell("captures: cudaStreamIsCapturing of the default stream beside one", "%s; the capture: %s",
       cudaGetErrorName(asked), cudaGetErrorName(ended));
}

// Each call in a capture of its own: does it go in, and does the capture survive it?
void calls_in_a_capture() {
  const cudaStream_t stream = make_stream();
  cudaEvent_t event = nullptr;
  require("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const Words words;
  void* const memory = allocate();
  CUcontext context = nullptr;
  unsigned long long id = 0;
  const auto context_of = entry<CUresult (*)(CUstream, CUcontext*)>("cuStreamGetCtx", 9020);
  const auto id_of = entry<CUresult (*)(CUstream, unsigned long long*)>("cuStreamGetId", 12000);
  const auto batch = entry<CUresult (*)(CUstream, unsigned, CUstreamBatchMemOpParams*, unsigned)>("cuStreamBatchMemOp",
                                                                                                 11070);
  const std::pair<const char*, std::function<std::string()>> calls[] = {
      {"captured: cuStreamGetCtx", [&] { return name_of(context_of(stream, &context)); }},
      {"captured: cuStreamGetId", [&] { return name_of(id_of(stream, &id)); }},
      {"captured: cuPointerGetAttribute of device memory",
       [&] {
         CUmemorytype type{};
         return name_of(
             driver().pointer(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(memory)));
       }},
      {"captured: cudaMemcpyAsync, device to device",
       [&] {
         return std::string(cudaGetErrorName(cudaMemcpyAsync(static_cast<char*>(memory) + bytes / 2, memory, bytes / 2,
                                                             cudaMemcpyDefault, stream)));
       }},
      {"captured: cudaEventRecord and cudaStreamWaitEvent",
       [&] {
         const cudaError_t recorded = cudaEventRecord(event, stream);
         return std::string(cudaGetErrorName(recorded)) + ", " + cudaGetErrorName(cudaStreamWaitEvent(stream, event));
       }},
      {"captured: cuStreamBatchMemOp, a wait and a write",
       [&] {
         CUstreamBatchMemOpParams operations[2]{};
         operations[0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
         operations[0].waitValue.address = words.seen;
         operations[1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
         operations[1].writeValue.address = words.seen;
         return name_of(batch(stream, 2, operations, 0));
       }},
  };
  for (const auto& [what, call] : calls) {
    require("cudaStreamBeginCapture", cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    const std::string result = call();
    cudaStreamCaptureStatus state{};
    const cudaError_t asked = cudaStreamIsCapturing(stream, &state);
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream, &graph);
    tell(what, "%s; cudaStreamIsCapturing: %s, %d (1: active, 2: invalidated); the capture: %s", result.c_str(),
         cudaGetErrorName(asked), static_cast<int>(state), cudaGetErrorName(ended));
    cudaGetLastError();
    if (graph) cudaGraphDestroy(graph);
  }
}

void managed() {
  void* memory = nullptr;
  require("cudaMallocManaged", cudaMallocManaged(&memory, bytes));
  const auto at = reinterpret_cast<CUdeviceptr>(memory);
  CUmemorytype type{};
  int legacy = -1, ordinal = -1, is = -1;
  driver().pointer(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, at);
  driver().pointer(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at);
  driver().pointer(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
  driver().pointer(&is, CU_POINTER_ATTRIBUTE_IS_MANAGED, at);
  tell("managed: MEMORY_TYPE, IS_MANAGED, legacy IPC, DEVICE_ORDINAL", "%d, %d, %d, %d", static_cast<int>(type), is,
       legacy, ordinal);
}

void classify_cost() {
  require("cudaFree", cudaFree(nullptr));
  const auto all =
      entry<CUresult (*)(unsigned, CUpointer_attribute*, void**, CUdeviceptr)>("cuPointerGetAttributes", 7000);
  const std::vector<char> host(4096);
  void* const device = allocate();
  for (const void* memory : {static_cast<const void*>(host.data()), static_cast<const void*>(device)}) {
    uint64_t answers[7] = {};
    void* places[7];
    for (int k = 0; k < 7; ++k) places[k] = &answers[k];
    CUpointer_attribute wanted[] = {
        CU_POINTER_ATTRIBUTE_MEMORY_TYPE,      CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
        CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, CU_POINTER_ATTRIBUTE_RANGE_SIZE,
        CU_POINTER_ATTRIBUTE_BUFFER_ID,        CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
        CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE};
    double ns[2];
    for (const unsigned n : {1u, 7u}) {
      constexpr int times = 10'000;
      const auto begin = Clock::now();
      for (int k = 0; k < times; ++k) all(n, wanted, places, reinterpret_cast<CUdeviceptr>(memory));
      ns[n == 7] = milliseconds(begin) * 1e6 / times;
    }
    tell(memory == device ? "classify: ns for one attribute, for seven, of device memory"
                          : "classify: ns for one attribute, for seven, of the host's memory",
         "%s, %s", decimal(ns[0], 0).c_str(), decimal(ns[1], 0).c_str());
  }
}

// Registered before the runtime's own function, so that it runs when the driver has shut down.
cudaEvent_t asked_at_exit = nullptr;
CUresult (*current_context)(CUcontext*) = nullptr;  // looked up before: no function is found at the end
void after_exit() {
  CUcontext found = nullptr;
  const CUresult context = current_context(&found), event = driver().query(asked_at_exit);
  std::printf("%-66s %d, %d (4: CUDA_ERROR_DEINITIALIZED)\n",
              "exit: cuCtxGetCurrent, cuEventQuery in an atexit function", static_cast<int>(context),
              static_cast<int>(event));
  std::fflush(stdout);
}
void at_exit() {
  std::atexit(after_exit);
  require("cudaFree", cudaFree(nullptr));
  current_context = entry<decltype(current_context)>("cuCtxGetCurrent", 4000);
  driver();
  require("cudaEventCreate", cudaEventCreateWithFlags(&asked_at_exit, cudaEventDisableTiming));
  std::exit(0);
}

void dmabuf() {
  const auto make = entry<CUresult (*)(void*, CUdeviceptr, size_t, CUmemRangeHandleType, unsigned long long)>(
      "cuMemGetHandleForAddressRange", 11070);
  allocate(512);
  const auto small = reinterpret_cast<CUdeviceptr>(allocate(512));
  const auto size = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const CUdeviceptr first = small / size * size;
  int fd = -1;
  for (const unsigned long long flags : {0ull, 1ull}) {
    const CUresult result = make(&fd, first, size, CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD, flags);
    tell(flags ? "dmabuf: the same with the flag for PCIe" : "dmabuf: of the host's page that holds a small allocation",
         "%s, %llu bytes into the page of %llu", name_of(result), static_cast<unsigned long long>(small - first),
         static_cast<unsigned long long>(size));
  }
}

// The cost of each call that collectives make, many times in a stream that has nothing else to do.
void costs() {
  const cudaStream_t stream = make_stream();
  cudaEvent_t event = nullptr;
  require("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const Words words;
  auto* const memory = static_cast<char*>(allocate());
  CUcontext context = nullptr;
  unsigned long long id = 0;
  cudaStreamCaptureStatus state{};
  const auto context_of = entry<CUresult (*)(CUstream, CUcontext*)>("cuStreamGetCtx", 9020);
  const auto id_of = entry<CUresult (*)(CUstream, unsigned long long*)>("cuStreamGetId", 12000);
  const std::pair<const char*, std::function<void()>> calls[] = {
      {"cudaMemcpyAsync of 8 bytes, device to device",
       [&] { cudaMemcpyAsync(memory + 64, memory, 8, cudaMemcpyDefault, stream); }},
      {"cudaEventRecord", [&] { cudaEventRecord(event, stream); }},
      {"cudaStreamWaitEvent", [&] { cudaStreamWaitEvent(stream, event); }},
      {"cuEventQuery", [&] { driver().query(event); }},
      {"cuStreamWriteValue32", [&] { driver().write(stream, words.seen, 1, 0); }},
      {"cuStreamWaitValue32 of a word that is set", [&] { driver().wait(stream, words.seen, 1, CU_STREAM_WAIT_VALUE_EQ); }},
      {"cudaStreamIsCapturing", [&] { cudaStreamIsCapturing(stream, &state); }},
      {"cuStreamGetCtx", [&] { context_of(stream, &context); }},
      {"cuStreamGetId", [&] { id_of(stream, &id); }},
  };
  words.set(1);
  for (const auto& [what, call] : calls) {
    constexpr int times = 500;
    call();
    require("cudaStreamSynchronize", cudaStreamSynchronize(stream));
    const auto begin = Clock::now();
    for (int k = 0; k < times; ++k) call();
    const double given = milliseconds(begin);
    require("cudaStreamSynchronize", cudaStreamSynchronize(stream));
    tell("costs: us a call until it returns, until its work is done",
         "%6s %6s %s", decimal(given * 1e3 / times, 2).c_str(),
         decimal(milliseconds(begin) * 1e3 / times, 2).c_str(), what);
  }
}

void large_copy() {
  constexpr uint64_t large = (uint64_t{4} << 30) + 4096;
  size_t free_bytes = 0, total = 0;
  require("cudaMemGetInfo", cudaMemGetInfo(&free_bytes, &total));
  if (free_bytes < 2 * large + (uint64_t{1} << 30)) return tell("large-copy", "there is no memory for it");
  auto *from = static_cast<char*>(allocate(large)), *to = static_cast<char*>(allocate(large));
  const cudaStream_t stream = make_stream();
  require("cudaMemset", cudaMemset(from, 7, large));
  require("cudaMemset", cudaMemset(to, 0, large));
  require("cudaDeviceSynchronize", cudaDeviceSynchronize());
  require("cudaMemcpyAsync", cudaMemcpyAsync(to, from, large, cudaMemcpyDefault, stream));
  require("cudaStreamSynchronize", cudaStreamSynchronize(stream));
  char last = 0;
  require("cudaMemcpy", cudaMemcpy(&last, to + large - 1, 1, cudaMemcpyDefault));
  tell("large-copy: the last byte of a copy of 4 GiB and a page", "%s", last == 7 ? "right" : "WRONG");
}

void imports(const char* what, const Post& post, int end) {
  cudaIpcMemHandle_t handle{};
  char done = 0;
  if (end == 0) {
    require("cudaIpcGetMemHandle", cudaIpcGetMemHandle(&handle, allocate()));
    post.send(0, &handle, sizeof handle);
    post.receive(0, &done, 1);
    return;
  }
  post.receive(1, &handle, sizeof handle);
  require("cudaFree", cudaFree(nullptr));
  void* memory = nullptr;
  {
    Waiting waiting;
    waiting.let_go_soon();
    timed(std::string(what) + "cudaIpcOpenMemHandle while a stream waits 300 ms",
          [&] { return cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess); });
  }
  unsigned access = 99;
  int ordinal = -1, legacy = -1;
  const auto at = reinterpret_cast<CUdeviceptr>(memory);
  driver().pointer(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, at);
  driver().pointer(&ordinal, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL, at);
  driver().pointer(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, at);
  tell((std::string(what) + "ACCESS_FLAGS, DEVICE_ORDINAL, legacy of mapped memory").c_str(), "%u, %d, %d", access,
       ordinal, legacy);
  {
    Waiting waiting;
    waiting.let_go_soon();
    timed(std::string(what) + "cudaIpcCloseMemHandle while a stream waits 300 ms",
          [&] { return cudaIpcCloseMemHandle(memory); });
  }
  post.send(1, "d", 1);
}

}  // namespace

void driver_facts() {
  alone("first-copy", first_copies);
  alone("beside-free", beside_a_free);
  alone("two-devices", two_devices);
  alone("handles", handles);
  alone("captures", captures);
  alone("captured", calls_in_a_capture);
  alone("managed", managed);
  alone("classify", classify_cost);
  alone("costs", costs);
  alone("exit", at_exit);
  alone("dmabuf", dmabuf);
  alone("large-copy", large_copy);
  both("imports", [](const Post& post, int end) { imports("imports: ", post, end); });
}

}  // namespace facts
