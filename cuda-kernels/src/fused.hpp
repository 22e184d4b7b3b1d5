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

// The limits of a program: commands and their sources, counted together, and bytes read. A command of n sources has at
// most 3 + n entries, and one without sources 2. The size at which one launch of a block stops being faster has not
// been measured.
constexpr uint32_t most_fused_commands = Program::most_entries / 2;
constexpr uint64_t most_fused_bytes = 64 << 10;

// Of commands that have been checked. Throws sdk::Error, TUTTI_NOT_SUPPORTED for what is beyond the limits.
Program make_program(std::span<const tutti_command> commands);
// Does the device let kernels run as long as they want? Otherwise none may wait for other processes.
bool is_patient(uint32_t device);
// Puts it into a stream of the current device as one kernel. Throws sdk::Error.
void launch(const Program& program, cudaStream_t stream);

}  // namespace tutti::cuda
