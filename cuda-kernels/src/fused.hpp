// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cuda_runtime.h>
#include <tutti/plugin/device.h>

#include <cstdint>
#include <span>

namespace tutti::cuda {

// A list of commands on its way to the device: entries of 8 bytes.
struct Program {
  static constexpr uint32_t most_entries = 500;
  uint32_t entries = 0;
  uint32_t reserved = 0;
  uint64_t entry[most_entries] = {};
};
static_assert(sizeof(Program) <= 4096, "what a kernel's parameters may take on every driver");

// Launches commands that have been checked. Throws sdk::Error, TUTTI_NOT_SUPPORTED for what does not fit.
Program make_program(std::span<const tutti_command> commands);
// Throws sdk::Error, TUTTI_NOT_SUPPORTED, where the device ends kernels that run long.
void require_patience(uint32_t device);
// Puts it into a stream of the current device as one kernel. Throws sdk::Error.
void launch(const Program& program, cudaStream_t stream);

}  // namespace tutti::cuda
