// SPDX-License-Identifier: Apache-2.0
//
// One kernel for each type and operator: the fold of tutti/sdk/arithmetic.hpp over n sources. Where all addresses lie
// alike within 16 bytes the body is read and written in 16-byte vectors, and only the edges by elements; otherwise
// everything goes by elements, and by bytes where elements are not aligned.
#include <array>
#include <string>
#include <tutti/sdk/arithmetic.hpp>
#include <utility>

#include "cuda_error.hpp"
#include "current_device.hpp"
#include "kernels.hpp"

namespace tutti::cuda {
namespace {

using sdk::Error;

constexpr uint32_t few_sources = 16;
constexpr uint32_t threads = 512;
constexpr uint32_t vector_bytes = 16;

template <uint32_t N>
struct Sources {
  const unsigned char* at[N];
};

struct Work {
  unsigned char* dst;
  unsigned char* dst2;
  uint64_t count;    // elements
  uint64_t head;     // elements before the first vector
  uint64_t vectors;  // 0: all by elements
  uint64_t divisor;
  uint32_t n;
  uint32_t aligned;  // elements are
};

template <typename T>
__device__ __forceinline__ T load(const unsigned char* from, bool aligned) {
  if (aligned) return *reinterpret_cast<const T*>(from);
  T value;
  unsigned char bytes[sizeof(T)];
#pragma unroll
  for (uint32_t i = 0; i < sizeof(T); ++i) bytes[i] = from[i];
  memcpy(&value, bytes, sizeof value);
  return value;
}

template <typename T>
__device__ __forceinline__ void store(unsigned char* to, T value, bool aligned) {
  if (aligned) {
    *reinterpret_cast<T*>(to) = value;
    return;
  }
  unsigned char bytes[sizeof(T)];
  memcpy(bytes, &value, sizeof value);
#pragma unroll
  for (uint32_t i = 0; i < sizeof(T); ++i) to[i] = bytes[i];
}

template <typename Element, uint32_t Op, uint32_t N>
__global__ void __launch_bounds__(threads) reduce(const __grid_constant__ Sources<N> sources, const Work work) {
  using Stored = typename Element::Stored;
  using Accumulator = typename Element::Accumulator;
  constexpr uint32_t lanes = vector_bytes / sizeof(Stored);
  const uint64_t first = blockIdx.x * uint64_t{threads} + threadIdx.x;
  const uint64_t stride = gridDim.x * uint64_t{threads};

  for (uint64_t v = first; v < work.vectors; v += stride) {
    const uint64_t at = work.head * sizeof(Stored) + v * vector_bytes;
    union {
      uint4 whole;
      Stored parts[lanes];
    } in, out;
    Accumulator sums[lanes];
    // The next source is on its way while one is added.
    const auto load_vector = [&](uint32_t k) { return *reinterpret_cast<const uint4*>(sources.at[k] + at); };
    in.whole = load_vector(0);
    uint4 ahead = work.n > 1 ? load_vector(1) : in.whole;
#pragma unroll
    for (uint32_t i = 0; i < lanes; ++i) sums[i] = Element::widen(in.parts[i]);
    for (uint32_t k = 1; k < work.n; ++k) {
      in.whole = ahead;
      if (k + 1 < work.n) ahead = load_vector(k + 1);
#pragma unroll
      for (uint32_t i = 0; i < lanes; ++i)
        sums[i] = sdk::combine<Op, Accumulator>(sums[i], Element::widen(in.parts[i]));
    }
#pragma unroll
    for (uint32_t i = 0; i < lanes; ++i)
      out.parts[i] = Element::narrow(work.divisor ? sdk::divided(sums[i], work.divisor) : sums[i]);
    *reinterpret_cast<uint4*>(work.dst + at) = out.whole;
    if (work.dst2) *reinterpret_cast<uint4*>(work.dst2 + at) = out.whole;
  }

  // The edges, or everything.
  const uint64_t body = work.vectors * lanes;
  for (uint64_t e = first; e < work.count - body; e += stride) {
    const uint64_t at = (e < work.head ? e : e + body) * sizeof(Stored);
    const Stored value = sdk::fold<Element, Op>(
        work.n, work.divisor, [&](uint32_t k) { return load<Stored>(sources.at[k] + at, work.aligned); });
    store(work.dst + at, value, work.aligned);
    if (work.dst2) store(work.dst2 + at, value, work.aligned);
  }
}

// Bytes to one or two destinations.
__global__ void __launch_bounds__(threads) copy(const unsigned char* from, const Work work) {
  const uint64_t first = blockIdx.x * uint64_t{threads} + threadIdx.x;
  const uint64_t stride = gridDim.x * uint64_t{threads};
  for (uint64_t v = first; v < work.vectors; v += stride) {
    const uint64_t at = work.head + v * vector_bytes;
    const uint4 whole = *reinterpret_cast<const uint4*>(from + at);
    *reinterpret_cast<uint4*>(work.dst + at) = whole;
    if (work.dst2) *reinterpret_cast<uint4*>(work.dst2 + at) = whole;
  }
  const uint64_t body = work.vectors * vector_bytes;
  for (uint64_t e = first; e < work.count - body; e += stride) {
    const uint64_t at = e < work.head ? e : e + body;
    const unsigned char byte = from[at];
    work.dst[at] = byte;
    if (work.dst2) work.dst2[at] = byte;
  }
}

uint32_t blocks_for(uint64_t work) {
  const auto device = static_cast<int>(device_of_thread());
  int processors = 0;
  check("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device));
  constexpr uint64_t per_processor = 4;  // 2048 threads
  const uint64_t wanted = (work + threads - 1) / threads, most = uint64_t(processors) * per_processor;
  return static_cast<uint32_t>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

// How the addresses of a command lie.
Work plan(const tutti_command& command, uint32_t size) {
  Work work{};
  work.dst = static_cast<unsigned char*>(command.dst);
  work.dst2 = static_cast<unsigned char*>(command.dst2);
  work.count = command.count;
  work.divisor = command.divisor;
  work.n = command.sources;
  const auto base = reinterpret_cast<uintptr_t>(command.dst);
  bool alike = true, aligned = base % size == 0;
  const auto look = [&](const void* address) {
    alike &= reinterpret_cast<uintptr_t>(address) % vector_bytes == base % vector_bytes;
    aligned &= reinterpret_cast<uintptr_t>(address) % size == 0;
  };
  for (uint32_t k = 0; k < command.sources; ++k) look(command.src[k]);
  if (command.dst2) look(command.dst2);
  work.aligned = aligned;
  if (alike && aligned) {
    work.head = (vector_bytes - base % vector_bytes) % vector_bytes / size;
    if (work.head > work.count) work.head = work.count;
    work.vectors = (work.count - work.head) * size / vector_bytes;
  }
  return work;
}

// Not <<<>>> and cudaGetLastError, which would give back an error that the application left behind.
template <typename... Arguments>
void start(const char* what, const void* function, uint32_t blocks, cudaStream_t stream, Arguments... arguments) {
  void* addresses[] = {&arguments...};
  check(what, cudaLaunchKernel(function, dim3(blocks), dim3(threads), addresses, 0, stream));
}

template <uint32_t N>
void start_reduction(const void* function, const tutti_command& command, const Work& work, uint32_t blocks,
                     cudaStream_t stream) {
  Sources<N> sources;
  for (uint32_t k = 0; k < command.sources; ++k) sources.at[k] = static_cast<const unsigned char*>(command.src[k]);
  start("cudaLaunchKernel of a reduction", function, blocks, stream, sources, work);
}

// A row of the table.
struct Kernel {
  const void* few;
  const void* many;
};

template <uint32_t Dtype, uint32_t Op>
Kernel make_kernel() {
  using Element = typename sdk::ElementOf<Dtype>::type;
  return {reinterpret_cast<const void*>(reduce<Element, Op, few_sources>),
          reinterpret_cast<const void*>(reduce<Element, Op, most_sources>)};
}

constexpr uint32_t folds = sdk::last_fold - sdk::first_fold + 1, types = sdk::last_dtype - sdk::first_dtype + 1;

template <uint32_t... I>
std::array<Kernel, sizeof...(I)> make_table(std::integer_sequence<uint32_t, I...>) {
  return {make_kernel<sdk::first_dtype + I / folds, sdk::first_fold + I % folds>()...};
}
template <uint32_t... I>
std::array<uint32_t, sizeof...(I)> make_sizes(std::integer_sequence<uint32_t, I...>) {
  return {uint32_t{sizeof(typename sdk::ElementOf<sdk::first_dtype + I>::type::Stored)}...};
}
const auto& table() {
  static const auto all = make_table(std::make_integer_sequence<uint32_t, types * folds>());
  return all;
}

}  // namespace

uint32_t element_bytes(uint32_t dtype) {
  static const auto sizes = make_sizes(std::make_integer_sequence<uint32_t, types>());
  return dtype < sdk::first_dtype || dtype > sdk::last_dtype ? 0 : sizes[dtype - sdk::first_dtype];
}

void launch(const tutti_command& command, cudaStream_t stream) {
  if (command.count == 0) return;
  if (command.kind == TUTTI_COMMAND_COPY) {
    const Work work = plan(command, 1);
    start("cudaLaunchKernel of a copy", reinterpret_cast<const void*>(copy),
          blocks_for(work.vectors ? work.vectors : work.count), stream,
          static_cast<const unsigned char*>(command.src[0]), work);
    return;
  }
  const uint32_t size = element_bytes(command.dtype);
  if (!size || command.op < sdk::first_fold || command.op > sdk::last_fold)
    throw Error(TUTTI_NOT_SUPPORTED, "no kernel for data type " + std::to_string(command.dtype) + " and operator " +
                                         std::to_string(command.op));
  if (command.sources == 0 || command.sources > most_sources)
    throw Error(TUTTI_NOT_SUPPORTED, "a reduction of " + std::to_string(command.sources) + " sources; expected 1 to " +
                                         std::to_string(most_sources));
  const Work work = plan(command, size);
  const Kernel& kernel = table()[(command.dtype - sdk::first_dtype) * folds + command.op - sdk::first_fold];
  const uint32_t blocks = blocks_for(work.vectors ? work.vectors : work.count);
  if (command.sources <= few_sources)
    start_reduction<few_sources>(kernel.few, command, work, blocks, stream);
  else
    start_reduction<most_sources>(kernel.many, command, work, blocks, stream);
}

void load_kernels() {
  cudaFuncAttributes attributes{};
  for (const Kernel& kernel : table())
    for (const void* function : {kernel.few, kernel.many})
      check("cudaFuncGetAttributes: this GPU is none that the kernels were built for, or a newer driver is needed",
            cudaFuncGetAttributes(&attributes, function));
  check("cudaFuncGetAttributes", cudaFuncGetAttributes(&attributes, reinterpret_cast<const void*>(copy)));
}

}  // namespace tutti::cuda
