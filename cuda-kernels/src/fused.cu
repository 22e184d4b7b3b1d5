// SPDX-License-Identifier: Apache-2.0
//
// A list of commands as one kernel of one block. The list travels in the kernel's parameters: nothing has to be kept
// until the device comes to it, and nothing is allocated.
#include <algorithm>
#include <array>
#include <atomic>
#include <string>

#include "current_device.hpp"
#include "fused.hpp"
#include "kernels.hpp"
#include "reduction.cuh"

namespace tutti::cuda {
namespace {

using sdk::Error;

// A command in the program: a head, for REDUCE a Fold, its addresses (dst, sources; or the flag).
struct Head {
  uint8_t kind, dtype, op, reserved;
  uint32_t number;  // count, or a flag's value
};
struct Fold {
  uint32_t sources, divisor;
};
static_assert(sizeof(Head) == 8 && sizeof(Fold) == 8);

// ---- The device's side

template <typename To>
__device__ __forceinline__ To entry_as(const Program& program, uint32_t at) {
  return sdk::bits_as<To>(program.entry[at]);
}
__device__ __forceinline__ unsigned char* address(const Program& program, uint32_t at) {
  return reinterpret_cast<unsigned char*>(program.entry[at]);
}

struct Operands {
  Head head;
  Fold fold;
  uint32_t dst, src;  // entries
};

template <uint32_t Row>
__device__ __noinline__ void reduce_row(const Program& program, const Operands& o) {
  using Element = typename sdk::ElementOf<sdk::first_dtype + Row / folds>::type;
  const auto source = [&](uint32_t k) { return static_cast<const unsigned char*>(address(program, o.src + k)); };
  const Work work = lay_out(address(program, o.dst), o.fold.sources, source, o.head.number, o.fold.divisor,
                            sizeof(typename Element::Stored));
  reduce_share<Element, sdk::first_fold + Row % folds>(source, work, {threadIdx.x, threads});
}

template <uint32_t... Row>
__device__ __forceinline__ void reduce(const Program& program, const Operands& o,
                                       std::integer_sequence<uint32_t, Row...>) {
  const uint32_t wanted = (o.head.dtype - sdk::first_dtype) * folds + o.head.op - sdk::first_fold;
  const auto try_row = [&]<uint32_t R>() {
    if constexpr (sdk::has_fold(sdk::first_dtype + R / folds, sdk::first_fold + R % folds))
      if (R == wanted) reduce_row<R>(program, o);
  };
  (try_row.template operator()<Row>(), ...);
}

// One thread looks; what others wrote before they set the flag is visible to all threads after the barrier that
// follows.
__device__ __forceinline__ void await(const uint32_t* flag, uint32_t value) {
  for (uint32_t polls = 0; *const_cast<const volatile uint32_t*>(flag) != value; ++polls)
    if (polls > 64) __nanosleep(100);
  __threadfence_system();
}

__global__ void __launch_bounds__(threads) carry_out(const __grid_constant__ Program program) {
  for (uint32_t at = 0; at < program.entries;) {
    Operands o{};
    o.head = entry_as<Head>(program, at++);
    switch (o.head.kind) {
      case TUTTI_COMMAND_WAIT:
        if (threadIdx.x == 0) await(reinterpret_cast<uint32_t*>(address(program, at)), o.head.number);
        ++at;
        break;
      case TUTTI_COMMAND_WRITE:
        // All threads have passed the barrier behind what they wrote before: the fence is for all of them.
        if (threadIdx.x == 0) {
          __threadfence_system();
          *reinterpret_cast<volatile uint32_t*>(address(program, at)) = o.head.number;
        }
        ++at;
        break;
      default:
        o.fold = o.head.kind == TUTTI_COMMAND_REDUCE ? entry_as<Fold>(program, at++) : Fold{1, 0};
        o.dst = at;
        o.src = at + 1;
        at = o.src + o.fold.sources;
        if (o.head.kind == TUTTI_COMMAND_REDUCE) {
          reduce(program, o, std::make_integer_sequence<uint32_t, types * folds>());
        } else {
          const auto source = [&](uint32_t k) { return address(program, o.src + k); };
          copy_share(source(0), lay_out(address(program, o.dst), 1, source, o.head.number, 0, 1),
                     {threadIdx.x, threads});
        }
    }
    __syncthreads();
  }
}

// ---- The host's side

class Writer {
 public:
  void add(const tutti_command& c) {
    const bool flag = c.kind == TUTTI_COMMAND_WAIT || c.kind == TUTTI_COMMAND_WRITE;
    if (!flag && c.kind != TUTTI_COMMAND_COPY && c.kind != TUTTI_COMMAND_REDUCE)
      throw Error(TUTTI_NOT_SUPPORTED, "command " + std::to_string(c.kind) + " cannot be part of one launch");
    if (c.divisor > UINT32_MAX)
      throw Error(TUTTI_NOT_SUPPORTED, "a divisor of " + std::to_string(c.divisor) + " in one launch");
    put(Head{static_cast<uint8_t>(c.kind), static_cast<uint8_t>(c.dtype), static_cast<uint8_t>(c.op), 0,
             flag ? c.value : static_cast<uint32_t>(c.count)});
    if (flag) return put(c.flag);
    if (c.kind == TUTTI_COMMAND_REDUCE) put(Fold{c.sources, static_cast<uint32_t>(c.divisor)});
    put(c.dst);
    for (uint32_t k = 0; k < c.sources; ++k) put(c.src[k]);
  }
  const Program& program() const { return program_; }

 private:
  template <typename Entry>
  void put(Entry entry) {
    program_.entry[program_.entries++] = sdk::bits_as<uint64_t>(entry);
  }
  Program program_;
};

template <uint32_t... I>
constexpr std::array<uint64_t, sizeof...(I)> make_sizes(std::integer_sequence<uint32_t, I...>) {
  return {sdk::bytes_of_element<sdk::first_dtype + I>()...};
}
constexpr auto sizes_of_elements = make_sizes(std::make_integer_sequence<uint32_t, types>());
}  // namespace

Program make_program(std::span<const tutti_command> commands) {
  uint64_t operands = 0, bytes = 0;
  for (const tutti_command& c : commands) {
    operands += uint64_t{1} + c.sources;
    if (c.sources)
      bytes += c.sources * std::min(c.count, most_fused_bytes + 1) *
               (c.kind == TUTTI_COMMAND_REDUCE ? sizes_of_elements[c.dtype - sdk::first_dtype] : 1);
  }
  if (operands > most_fused_commands || bytes > most_fused_bytes)
    throw Error(TUTTI_NOT_SUPPORTED, std::to_string(operands) + " commands and sources in one launch, which read " +
                                         std::to_string(bytes) + " bytes: at most " +
                                         std::to_string(most_fused_commands) + " and " +
                                         std::to_string(most_fused_bytes));
  Writer writer;
  for (const tutti_command& command : commands) writer.add(command);
  return writer.program();
}

bool is_patient(uint32_t device) {
  enum : int8_t { unknown, patient, limited };
  static std::array<std::atomic<int8_t>, most_devices> known;
  if (device < most_devices && known[device].load(std::memory_order_relaxed) == patient) return true;
  int ends = 0;
  check("cudaDeviceGetAttribute",
        cudaDeviceGetAttribute(&ends, cudaDevAttrKernelExecTimeout, static_cast<int>(device)));
  if (device < most_devices) known[device].store(ends ? limited : patient, std::memory_order_relaxed);
  return !ends;
}

void launch(const Program& program, cudaStream_t stream) {
  start("cudaLaunchKernel of a list of commands", reinterpret_cast<const void*>(carry_out), 1, stream, program);
}

}  // namespace tutti::cuda
