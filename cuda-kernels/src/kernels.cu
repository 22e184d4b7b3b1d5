// SPDX-License-Identifier: Apache-2.0
//
// One kernel for each type and operator (reduction.cuh), and one that copies to two places.
#include <array>
#include <string>

#include "current_device.hpp"
#include "kernels.hpp"
#include "reduction.cuh"

namespace tutti::cuda {
namespace {

using sdk::Error;

constexpr uint32_t few_sources = 16;

template <uint32_t N>
struct Sources {
  const unsigned char* at[N];
};

__device__ __forceinline__ Share share_of_grid() {
  return {blockIdx.x * uint64_t{threads} + threadIdx.x, gridDim.x * uint64_t{threads}};
}

template <typename Element, uint32_t Op, uint32_t N>
__global__ void __launch_bounds__(threads) reduce(const __grid_constant__ Sources<N> sources, const Work work) {
  reduce_share<Element, Op>([&](uint32_t k) { return sources.at[k]; }, work, share_of_grid());
}

// Bytes to one or two destinations.
__global__ void __launch_bounds__(threads) copy(const unsigned char* from, const Work work) {
  copy_share(from, work, share_of_grid());
}

// As many as NCCL's channels at most: the rest of the device goes on with the application's kernels.
uint64_t most_blocks() {
  static const uint64_t most = sdk::config_number("TUTTI_CUDA_BLOCKS", 32, 0, 1u << 16);
  return most;
}

uint32_t blocks_for(uint64_t work) {
  uint64_t most = most_blocks();
  if (!most) {  // the whole device
    int processors = 0;
    check("cudaDeviceGetAttribute", cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount,
                                                           static_cast<int>(device_of_thread())));
    constexpr uint64_t per_processor = 4;  // 2048 threads
    most = uint64_t(processors) * per_processor;
  }
  const uint64_t wanted = (work + threads - 1) / threads;
  return static_cast<uint32_t>(wanted < 1 ? 1 : wanted < most ? wanted : most);
}

Work plan(const tutti_command& command, uint32_t size) {
  return lay_out(
      command.dst, command.sources, [&](uint32_t k) { return command.src[k]; }, command.count, command.divisor, size);
}

template <uint32_t N>
void start_reduction(const void* function, const tutti_command& command, const Work& work, uint32_t blocks,
                     cudaStream_t stream) {
  Sources<N> sources;
  for (uint32_t k = 0; k < command.sources; ++k) sources.at[k] = static_cast<const unsigned char*>(command.src[k]);
  start("cudaLaunchKernel of a reduction", function, blocks, stream, sources, work);
}

// A row of the table; nullptr where the operator is not defined for the type.
struct Kernel {
  const void* few;  // nullptr: many serves them too
  const void* many;
};

// Is it used so often that fewer arguments of a launch pay for a kernel more?
constexpr bool is_common(uint32_t dtype, uint32_t op) { return dtype <= TUTTI_FLOAT64 && op <= TUTTI_MAX; }

template <uint32_t Dtype, uint32_t Op>
Kernel make_kernel() {
  if constexpr (sdk::has_fold(Dtype, Op)) {
    using Element = typename sdk::ElementOf<Dtype>::type;
    Kernel kernel{nullptr, reinterpret_cast<const void*>(reduce<Element, Op, most_sources>)};
    if constexpr (is_common(Dtype, Op)) kernel.few = reinterpret_cast<const void*>(reduce<Element, Op, few_sources>);
    return kernel;
  } else {
    return {};
  }
}

template <uint32_t... I>
std::array<Kernel, sizeof...(I)> make_table(std::integer_sequence<uint32_t, I...>) {
  return {make_kernel<sdk::first_dtype + I / folds, sdk::first_fold + I % folds>()...};
}
template <uint32_t... I>
std::array<uint32_t, sizeof...(I)> make_sizes(std::integer_sequence<uint32_t, I...>) {
  return {sdk::bytes_of_element<sdk::first_dtype + I>()...};
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
  if (!sdk::has_fold(command.dtype, command.op))
    throw Error(TUTTI_NOT_SUPPORTED, "no kernel for data type " + std::to_string(command.dtype) + " and operator " +
                                         std::to_string(command.op));
  if (command.sources == 0 || command.sources > most_sources)
    throw Error(TUTTI_NOT_SUPPORTED, "a reduction of " + std::to_string(command.sources) + " sources; expected 1 to " +
                                         std::to_string(most_sources));
  const Work work = plan(command, size);
  const Kernel& kernel = table()[(command.dtype - sdk::first_dtype) * folds + command.op - sdk::first_fold];
  const uint32_t blocks = blocks_for(work.vectors ? work.vectors : work.count);
  if (kernel.few && command.sources <= few_sources)
    start_reduction<few_sources>(kernel.few, command, work, blocks, stream);
  else
    start_reduction<most_sources>(kernel.many, command, work, blocks, stream);
}

void launch_all_once(cudaStream_t stream) {
  constexpr const char* what = "cudaLaunchKernel: the kernels were not built for this GPU, or a newer driver is needed";
  for (const Kernel& kernel : table()) {
    if (kernel.few) start(what, kernel.few, 1, stream, Sources<few_sources>{}, Work{});
    if (kernel.many) start(what, kernel.many, 1, stream, Sources<most_sources>{}, Work{});
  }
  start(what, reinterpret_cast<const void*>(copy), 1, stream, static_cast<const unsigned char*>(nullptr), Work{});
}

}  // namespace tutti::cuda
