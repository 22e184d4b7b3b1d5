// SPDX-License-Identifier: Apache-2.0
//
// Answers of this machine to questions that CUDA's manuals leave open: one line per fact, by plain CUDA calls without
// Tutti. Each probe has processes of its own with a deadline, so that what hangs says so and the next one runs. The
// exit status is 0 unless there is no GPU (77): facts are no failures.
#include "probe.hpp"

namespace {

using namespace facts;

constexpr int no_gpu = 77;

// -------------------------------------------------------------------------------------------------------- the machine

void machine() {
  int devices = 0, runtime = 0, version = 0;
  const auto begin = Clock::now();
  if (const cudaError_t error = cudaGetDeviceCount(&devices); error != cudaSuccess || !devices) {
    tell("cudaGetDeviceCount", "%s", cudaGetErrorName(error));
    std::_Exit(no_gpu);
  }
  const double found_ms = milliseconds(begin);
  cudaRuntimeGetVersion(&runtime);
  cudaDriverGetVersion(&version);
  tell("CUDA runtime, driver", "%d, %d", runtime, version);
  const auto context = Clock::now();
  require("cudaFree", cudaFree(nullptr));
  tell("ms to find the devices, to make a context", "%s, %s", decimal(found_ms, 0).c_str(),
       decimal(milliseconds(context), 0).c_str());
  const std::pair<const char*, CUdevice_attribute> attributes[] = {
      {"compute mode (0: default, 2: prohibited, 3: exclusive process)", CU_DEVICE_ATTRIBUTE_COMPUTE_MODE},
      {"MPS", CU_DEVICE_ATTRIBUTE_MPS_ENABLED},
      {"unified addresses", CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING},
      {"cudaHostRegister is supported", CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED},
      {"registered host memory has the host's address", CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM},
      {"wait-value can flush remote writes", CU_DEVICE_ATTRIBUTE_CAN_FLUSH_REMOTE_WRITES},
      {"memory by POSIX descriptors", CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED},
      {"memory pools", CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED},
      {"dma-buf", CU_DEVICE_ATTRIBUTE_DMA_BUF_SUPPORTED},
      {"copy engines", CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT},
      {"multiprocessors", CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT}};
  for (int device = 0; device < devices; ++device) {
    cudaDeviceProp properties{};
    require("cudaGetDeviceProperties", cudaGetDeviceProperties(&properties, device));
    tell(("device " + std::to_string(device)).c_str(), "%s, %d.%d, %zu MiB", properties.name, properties.major,
         properties.minor, properties.totalGlobalMem >> 20);
    for (const auto& [text, which] : attributes) {
      int value = -1;
      driver().attribute(&value, which, device);
      tell(("device " + std::to_string(device) + ": " + text).c_str(), "%d", value);
    }
    for (int peer = 0; peer < devices; ++peer) {
      int able = 0;
      if (peer == device || cudaDeviceCanAccessPeer(&able, device, peer) != cudaSuccess) continue;
      tell(("device " + std::to_string(device) + " reads device " + std::to_string(peer)).c_str(), "%d", able);
    }
  }
}

// ------------------------------------------------------------------------------------------------------------ pointers

void pointers() {
  void *small = nullptr, *pooled = nullptr;
  const cudaStream_t stream = make_stream();
  require("cudaMalloc", cudaMalloc(&small, 1000));
  CUdeviceptr base = 0, at = reinterpret_cast<CUdeviceptr>(small);
  size_t bytes = 0, range = 0;
  require("cuMemGetAddressRange", driver().range(&base, &bytes, at + 999));
  driver().pointer(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
  tell("cudaMalloc of 1000 bytes: cuMemGetAddressRange, RANGE_SIZE", "%zu from its first byte %s, %zu", bytes,
       base == at ? "on" : "NOT on", range);
  const auto ask = [&](const char* who, void* address) {
    CUmemorytype type{};
    const CUresult result =
        driver().pointer(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, reinterpret_cast<CUdeviceptr>(address));
    const char* name = "";
    driver().name(result, &name);
    tell(who, "%s, %d (1: host, 2: device)", name, static_cast<int>(type));
  };
  std::thread([&] { ask("what a thread without a context is told of device memory", small); }).join();
  require("cudaFree", cudaFree(small));
  ask("what is told of freed device memory", small);
  if (cudaMallocAsync(&pooled, 1000, stream) == cudaSuccess) {
    int legacy = -1;
    unsigned access = 99;
    driver().pointer(&legacy, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE, reinterpret_cast<CUdeviceptr>(pooled));
    driver().pointer(&access, CU_POINTER_ATTRIBUTE_ACCESS_FLAGS, reinterpret_cast<CUdeviceptr>(pooled));
    tell("cudaMallocAsync: legacy IPC, access flags of its own device", "%d, %u", legacy, access);
  }
}

// Does a thread without a context make one on device 0 by asking for an event of another device?
void stray_contexts() {
  int devices = 0;
  require("cudaGetDeviceCount", cudaGetDeviceCount(&devices));
  if (devices < 2) return;
  require("cudaSetDevice", cudaSetDevice(1));
  cudaEvent_t event = nullptr;
  require("cudaEventCreate", cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  const auto first_is_used = [] {
    unsigned flags = 0;
    int active = -1;
    driver().state(0, &flags, &active);
    return active;
  };
  std::thread([&] { driver().query(event); }).join();
  const int by_driver = first_is_used();
  std::thread([&] { cudaEventQuery(event); }).join();
  tell("device 0 gets a context by cuEventQuery, by cudaEventQuery elsewhere", "%d, %d", by_driver, first_is_used());
}

// ------------------------------------------------------------------------------------------------ while a stream waits

// How long calls take while a stream waits for a word that comes after `held`: about as long when they wait for it.
void beside_a_wait() {
  constexpr std::chrono::milliseconds held(300);
  constexpr uint64_t bytes = 1 << 20;
  const cudaStream_t waiting = make_stream();
  Words words;
  void *in = nullptr, *from = nullptr, *to = nullptr, *freed = nullptr;
  require("cudaMalloc", cudaMalloc(&in, bytes));
  require("cudaMalloc", cudaMalloc(&freed, 64 * bytes));
  require("cudaHostAlloc", cudaHostAlloc(&from, bytes, cudaHostAllocMapped));
  require("cudaHostAlloc", cudaHostAlloc(&to, bytes, cudaHostAllocMapped));
  void* plain = std::aligned_alloc(page, bytes);
  std::memset(plain, 0, bytes);
  cudaEvent_t event = nullptr;
  const auto probe = [&](const char* what, const std::function<cudaError_t()>& call) {
    words.set(0);
    require("cuStreamWaitValue32", driver().wait(waiting, words.seen, 1, CU_STREAM_WAIT_VALUE_EQ));
    if (event) cudaEventRecord(event, waiting);
    std::thread releasing([&] {
      std::this_thread::sleep_for(held);
      words.set(1);
    });
    const auto begin = Clock::now();
    const cudaError_t error = call();
    const double took = milliseconds(begin);
    releasing.join();
    require("cudaStreamSynchronize", cudaStreamSynchronize(waiting));
    cudaGetLastError();
    tell((std::string("while a stream waits 300 ms: ms of ") + what).c_str(), "%s %s", decimal(took, 2).c_str(),
         error == cudaSuccess ? "" : cudaGetErrorName(error));
  };
  probe("cudaMemcpyAsync host to host behind it",
        [&] { return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, waiting); });
  probe("cudaMemcpyAsync host to device behind it",
        [&] { return cudaMemcpyAsync(in, from, bytes, cudaMemcpyDefault, waiting); });
  probe("cudaMemcpyAsync device to host behind it",
        [&] { return cudaMemcpyAsync(to, in, bytes, cudaMemcpyDefault, waiting); });
  probe("cudaHostRegister",
        [&] { return cudaHostRegister(plain, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped); });
  probe("cudaHostUnregister", [&] { return cudaHostUnregister(plain); });
  void* made = nullptr;
  probe("cudaMalloc", [&] { return cudaMalloc(&made, 64 * bytes); });
  probe("cudaFree", [&] { return cudaFree(made); });
  cudaStream_t another = nullptr;
  probe("cudaStreamCreate", [&] { return cudaStreamCreateWithFlags(&another, cudaStreamNonBlocking); });
  probe("cudaEventCreate", [&] { return cudaEventCreateWithFlags(&event, cudaEventDisableTiming); });
  probe("cudaEventQuery", [&] { return cudaEventQuery(event); });
  probe("cudaEventQuery beside a cudaFree of another thread", [&] {
    std::thread freeing([&] { cudaFree(freed); });
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    const auto begin = Clock::now();
    const cudaError_t error = cudaEventQuery(event);
    const double took = milliseconds(begin);
    freeing.join();
    tell("    of which cudaEventQuery took", "%s", decimal(took, 2).c_str());
    return error;
  });
}

// ------------------------------------------------------------------------------------------------------- two processes

void words_of_two_processes(int file, const Post& post, int end) {
  constexpr uint32_t turns = 200;
  const Words words(file);
  const cudaStream_t stream = make_stream();
  cudaEvent_t done = nullptr;
  require("cudaEventCreate", cudaEventCreateWithFlags(&done, cudaEventDisableTiming));
  char other = 0;
  post.send(end, "r", 1);
  post.receive(end, &other, 1);
  const auto begin = Clock::now();
  for (uint32_t turn = 1; turn <= turns; ++turn) {
    const CUdeviceptr mine = words.seen + (end ? 64 : 0), theirs = words.seen + (end ? 0 : 64);
    if (end) require("cuStreamWaitValue32", driver().wait(stream, theirs, turn, CU_STREAM_WAIT_VALUE_EQ));
    require("cuStreamWriteValue32", driver().write(stream, mine, turn, CU_STREAM_WRITE_VALUE_DEFAULT));
    if (!end) require("cuStreamWaitValue32", driver().wait(stream, theirs, turn, CU_STREAM_WAIT_VALUE_EQ));
  }
  require("cudaStreamSynchronize", cudaStreamSynchronize(stream));
  if (!end)
    tell("two processes' streams by words in a registered memfd: us a round", "%s",
         decimal(milliseconds(begin) * 1e3 / turns, 1).c_str());
}

constexpr size_t few = 60'000;
constexpr int wanted = 0x5a;

void see(const char* what, const void* memory) {
  std::vector<unsigned char> got(few);
  require("cudaMemcpy", cudaMemcpy(got.data(), memory, few, cudaMemcpyDefault));
  size_t wrong = 0;
  for (const unsigned char byte : got) wrong += byte != wanted;
  tell(what, wrong ? "WRONG BYTES: %zu" : "yes, %zu wrong bytes", wrong);
}

// The second of two small allocations, which may lie in one block.
void legacy_handles(const char* what, const Post& post, int end) {
  cudaIpcMemHandle_t handle{};
  char done = 0;
  if (end == 0) {
    void *first = nullptr, *second = nullptr;
    require("cudaMalloc", cudaMalloc(&first, few));
    require("cudaMalloc", cudaMalloc(&second, few));
    require("cudaMemset", cudaMemset(first, 1, few));
    require("cudaMemset", cudaMemset(second, wanted, few));
    require("cudaDeviceSynchronize", cudaDeviceSynchronize());
    require("cudaIpcGetMemHandle", cudaIpcGetMemHandle(&handle, second));
    post.send(0, &handle, sizeof handle);
    post.receive(0, &done, 1);
    return;
  }
  post.receive(1, &handle, sizeof handle);
  void* memory = nullptr;
  require("cudaIpcOpenMemHandle", cudaIpcOpenMemHandle(&memory, handle, cudaIpcMemLazyEnablePeerAccess));
  see(what, memory);
  CUdeviceptr base = 0, at = reinterpret_cast<CUdeviceptr>(memory);
  size_t bytes = 0, range = 0;
  driver().range(&base, &bytes, at);
  driver().pointer(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at);
  tell("    of 60000 bytes: cuMemGetAddressRange, RANGE_SIZE there", "%zu from %zd bytes before, %zu", bytes,
       static_cast<ssize_t>(at - base), range);
  require("cudaIpcCloseMemHandle", cudaIpcCloseMemHandle(memory));
  post.send(1, "d", 1);
}

void descriptors(const char* what, const Post& post, int end) {
  require("cudaFree", cudaFree(nullptr));
  CUmemAllocationProp properties{};
  properties.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  properties.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  properties.requestedHandleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  CUmemGenericAllocationHandle handle{};
  size_t bytes = 0;
  char done = 0;
  int fd = -1;
  if (end == 0) {
    require("cuMemGetAllocationGranularity",
            driver().granularity(&bytes, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    require("cuMemCreate", driver().create(&handle, bytes, &properties, 0));
  } else {
    fd = post.receive(1, &bytes, sizeof bytes);
    require("cuMemImportFromShareableHandle",
            driver().take_in(&handle, reinterpret_cast<void*>(static_cast<intptr_t>(fd)),
                             CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR));
  }
  CUdeviceptr at = 0;
  require("cuMemAddressReserve", driver().reserve(&at, 4 * bytes, 0, 0, 0));
  require("cuMemMap", driver().map(at + bytes, bytes, 0, handle, 0));
  CUmemAccessDesc access{};
  access.location = properties.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  require("cuMemSetAccess", driver().access(at + bytes, bytes, &access, 1));
  auto* memory = reinterpret_cast<void*>(at + bytes);
  if (end == 1) {
    see(what, memory);
    post.send(1, "d", 1);
    return;
  }
  CUdeviceptr base = 0, range_base = 0;
  size_t mapped = 0, range = 0;
  unsigned long long block = 0;
  driver().range(&base, &mapped, at + bytes);
  driver().pointer(&range_base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, at + bytes);
  driver().pointer(&range, CU_POINTER_ATTRIBUTE_RANGE_SIZE, at + bytes);
  driver().pointer(&block, CU_POINTER_ATTRIBUTE_MEMORY_BLOCK_ID, at + bytes);
  tell("the second of 4 units reserved is mapped: cuMemGetAddressRange, RANGE, id",
       "%zu units at %zd, %zu at %zd, %llu", mapped / bytes,
       static_cast<ssize_t>(base - at) / static_cast<ssize_t>(bytes), range / bytes,
       static_cast<ssize_t>(range_base - at) / static_cast<ssize_t>(bytes), block);
  require("cudaMemset", cudaMemset(memory, wanted, few));
  require("cudaDeviceSynchronize", cudaDeviceSynchronize());
  require("cuMemExportToShareableHandle", driver().hand_out(&fd, handle, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, 0));
  post.send(0, &bytes, sizeof bytes, fd);
  post.receive(0, &done, 1);
}

}  // namespace

int main() {
  int status = 0;
  const pid_t first = start("the machine", machine);
  waitpid(first, &status, 0);
  if (WIFEXITED(status) && WEXITSTATUS(status) == no_gpu) return no_gpu;
  alone("pointers", pointers);
  alone("contexts that nobody asked for", stray_contexts);
  alone("while a stream waits", beside_a_wait);
  facts::driver_facts();
  const int file = memfd_create("cuda-facts", MFD_CLOEXEC);
  if (file < 0 || ftruncate(file, 4096) != 0) return 1;
  const char* by_words = "two processes' streams by words in a registered memfd";
  both(by_words, [&](const Post& post, int end) { words_of_two_processes(file, post, end); });
  const char* by_handle = "another process reads memory of cudaMalloc by a legacy handle";
  both(by_handle, [&](const Post& post, int end) { legacy_handles(by_handle, post, end); });
  const char* by_descriptor = "another process reads memory of cuMemCreate by a descriptor";
  both(by_descriptor, [&](const Post& post, int end) { descriptors(by_descriptor, post, end); });
  return 0;
}
