// SPDX-License-Identifier: Apache-2.0
//
// Streams in few hardware queues: a queue is a thread that carries out its commands one after the other, whatever
// stream they come from. What waits holds up everything behind it: an order of commands that a real device could lock
// up on locks up here.
#pragma once

#include <tutti/plugin/device.h>

#include <atomic>
#include <cstdint>
#include <span>

namespace tutti::simulated {

// How often it was set, and how often those settings were reached.
struct Mark {
  uint32_t device = 0;
  std::atomic<uint64_t> set{0};
  std::atomic<uint64_t> reached{0};
};

void* create_stream(uint32_t device);
// Returns when the stream's commands have been carried out.
void destroy_stream(void* stream);
uint32_t stream_device(void* stream);
void enqueue(void* stream, std::span<const tutti_command> commands);

}  // namespace tutti::simulated
