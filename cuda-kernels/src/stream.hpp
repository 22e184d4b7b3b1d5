// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/plugin/device.h>

#include <cstdint>
#include <span>

namespace tutti::cuda {

// The functions of executor/1, as errors or results.
struct Event;
void prepare(uint32_t device);
void* create_stream(uint32_t device);
void destroy_stream(void* stream);
void stream_state(void* stream, uint32_t& device, uint64_t& flags);
Event* create_event(uint32_t device);
void destroy_event(Event* event);
bool query_event(Event* event);
void enqueue(void* stream, std::span<const tutti_command> commands);
void enqueue_fused(void* stream, std::span<const tutti_command> commands);

}  // namespace tutti::cuda
