// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <tutti/plugin/device.h>

namespace tutti::cuda {

// The most sources of one reduction.
#if CUDART_VERSION >= 12010
constexpr uint32_t most_sources = 4000;
#else  // a kernel's parameters take 4 KiB
constexpr uint32_t most_sources = 480;
#endif

// Puts a TUTTI_COMMAND_REDUCE or TUTTI_COMMAND_COPY, as a kernel, into a stream of the current device.
// Throws sdk::Error.
void launch(const tutti_command& command, cudaStream_t stream);
// Launches every kernel once, with nothing to do: it is loaded then, and has its local memory.
void launch_all_once(cudaStream_t stream);
// Bytes of an element; 0: no type.
uint32_t element_bytes(uint32_t dtype);

}  // namespace tutti::cuda
