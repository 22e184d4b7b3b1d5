// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/plugin/device.h>

#include <cstdint>
#include <span>

namespace tutti::cuda {

// The functions of executor/1, as errors or results.
struct Mark;
void prepare(uint32_t device);
void* create_stream(uint32_t device);
void destroy_stream(void* stream);
void stream_state(void* stream, uint32_t& device, uint64_t& flags);
Mark* create_mark(uint32_t device);
void destroy_mark(Mark* mark);
bool poll_mark(Mark* mark);
void enqueue(void* stream, std::span<const tutti_command> commands);
void enqueue_fused(void* stream, std::span<const tutti_command> commands);

}  // namespace tutti::cuda
