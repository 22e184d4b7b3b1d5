// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/plugin/device.h>

namespace tutti::simulated {

// The loop of one type and operator over a TUTTI_COMMAND_REDUCE; throws sdk::Error for what is no type or operator.
using ReduceLoop = void (*)(const tutti_command& command, const void* const* sources);
ReduceLoop find_reduce(uint32_t dtype, uint32_t op);
// The same of a sum with TUTTI_COMMAND_EXACT.
ReduceLoop find_exact_sum(uint32_t dtype, uint32_t op);
uint64_t element_bytes(uint32_t dtype);

}  // namespace tutti::simulated
