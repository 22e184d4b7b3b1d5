// SPDX-License-Identifier: Apache-2.0
//
// Streams in few hardware queues: a queue is a thread that carries out its commands one after the other, whatever
// stream they come from. A waiting command holds up everything behind it, so an order of commands that can deadlock a
// real device deadlocks here.
#pragma once

#include <tutti/plugin/device.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>

namespace tutti::simulated {

class Graph;

// Each RECORD is a setting of its own, reached or not. A query asks for the newest one. An AFTER waits for the one that
// was the newest when it was enqueued: streams that record the same event reach their settings in any order.
class Event {
 public:
  using Mark = std::shared_ptr<std::atomic<bool>>;  // of a setting: has its stream come to it?

  // Makes a new setting.
  Mark set() {
    const std::lock_guard lock(mutex_);
    return newest_ = std::make_shared<std::atomic<bool>>(false);
  }
  Mark newest() const {
    const std::lock_guard lock(mutex_);
    return newest_;
  }

  uint32_t device = 0;
  std::atomic<const Graph*> recorded{nullptr};  // where the newest RECORD of it is part of

 private:
  mutable std::mutex mutex_;
  Mark newest_ = std::make_shared<std::atomic<bool>>(true);  // an event that was never set holds up nobody
};

void* create_stream(uint32_t device);
// Returns when the stream's commands have been carried out; where handles come again (Hazard::handles) at once, and the
// next stream of the device has the same handle.
void destroy_stream(void* stream);
uint32_t stream_device(void* stream);
// Different for any two streams that the process makes, also where their handles are the same.
uint32_t stream_number(void* stream);
// Is the event reached? Throws sdk::Error where it was recorded in a graph (Hazard::capture).
bool query(const Event& event);
// Returns when all that the device's streams have been given so far has been carried out.
void drain(uint32_t device);
void enqueue(void* stream, std::span<const tutti_command> commands);
void enqueue_fused(void* stream, std::span<const tutti_command> commands);
// The limits of enqueue_fused: commands and their sources (TUTTI_SIMULATED_FUSED), and bytes read.
uint32_t most_fused_commands();
constexpr uint64_t most_fused_bytes = 64 << 10;

// The plugin's interface of its own, for tests: how many copies, reductions, batches of flags and fused lists the
// devices of this process were given so far, how often classify was asked, and how often something that may wait for a
// whole device (allocation, release, mapping, import, loading) was called while a device of the process was not done.
struct Launches {
  static constexpr const char* id = "tutti.simulated_launches/1";
  std::atomic<uint64_t> count{0};
  std::atomic<uint64_t> queries{0};
  std::atomic<uint64_t> synchronised{0};
};
Launches& launches();
// Counts a call that may wait for a whole device.
void count_synchronisation();

// Graphs: what is enqueued into the streams from begin_capture to end_capture is recorded instead, and at each launch
// is carried out in those streams, ordered as it was recorded. The streams outlive the graph.
bool is_capturing(void* stream);
Graph* begin_capture(std::span<void* const> streams);
void end_capture(Graph* graph);
void launch(const Graph* graph);
void destroy_graph(Graph* graph);

}  // namespace tutti::simulated
