// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <tutti/plugin/device.h>

namespace tutti::cuda {

// The most sources of one reduction.
constexpr uint32_t most_sources = 4000;

// Puts a TUTTI_COMMAND_REDUCE or TUTTI_COMMAND_COPY, as a kernel, into a stream of the current device.
// Throws sdk::Error.
void launch(const tutti_command& command, cudaStream_t stream);
// Loads all kernels on the current device.
void load_kernels();
// Bytes of an element; 0: no type.
uint32_t element_bytes(uint32_t dtype);

}  // namespace tutti::cuda
