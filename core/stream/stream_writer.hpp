// SPDX-License-Identifier: Apache-2.0
//
// The writer of device commands: everything that the library puts into streams goes through one. It enqueues commands,
// sets events, and bounds how many commands the device has queued: a full queue makes the thread that adds to it wait,
// which must not happen to the thread that the queue waits for.
//
// A writer serves the streams of one operation, of one or several ranks, and then those of the next. It keeps its
// memory, so an operation that is no larger than an earlier one allocates nothing.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "stream/stream_counter.hpp"

namespace tutti::core {

// Commands that a process may have in a device's queue while it moves bytes for them: devices take about a thousand.
constexpr uint64_t most_queued = 256;

class StreamWriter {
 public:
  struct Target {
    uint32_t rank = 0;    // for messages
    uint32_t device = 0;  // of the stream and of its events
    void* stream = nullptr;
    // Events for use within an operation; made as needed, kept by the owner.
    std::vector<tutti_event*>* spare = nullptr;
    StreamCounter* queue = nullptr;  // tells how much of the queue is done; needed for a bounded operation
    std::mutex* turn = nullptr;      // held while commands are added; nullptr: no other thread adds any
  };
  StreamWriter() = default;
  StreamWriter(const StreamWriter&) = delete;
  StreamWriter& operator=(const StreamWriter&) = delete;

  // Begins an operation. At most `most` of its commands are in the device's queue; 0: any number. `meanwhile` is called
  // while the writer waits for the device or for a turn, and ends the operation by throwing. It outlives the operation.
  // All functions below throw Failure when the device refuses.
  void open(const DeviceTables& device, uint64_t most, const std::function<void()>& meanwhile);
  // Adds a stream; the first is target 0. The caller uses the first `events` spare events itself, see event_of().
  void add(const Target& target, uint32_t events = 0);
  tutti_event* event_of(size_t target, uint32_t number) const { return (*at(target).of.spare)[number]; }

  // Gives the stream prepared commands, which belong to the caller.
  void write(size_t target, const tutti_command* commands, size_t n);
  // The same in one launch, within the executor's limits.
  void write_fused(size_t target, const tutti_command* commands, size_t n);

  // Single commands are collected until flush().
  void copy(size_t target, void* dst, const void* src, uint64_t bytes);
  void flag(size_t target, uint32_t kind, uint32_t* flag, uint32_t value);
  void add(size_t target, const tutti_command& command) { buffers_[target].collected.push_back(command); }
  void event(size_t target, uint32_t kind, tutti_event* event);
  // An event of the stream's device, which is the caller's.
  tutti_event* make_event(size_t target) const;
  // Collects a spare event; it is the writer's again when the operation ends.
  tutti_event* event_end(size_t target);
  size_t collected(size_t target) const { return at(target).collected.size(); }
  void flush(size_t target);
  // Forgets what was collected.
  void drop(size_t target);

  // Flushes all, and waits until at most so many commands of the operation are not done. For a bounded operation.
  void drain(uint64_t most);
  // Prepared commands that the stream was given, none of which was fused.
  uint64_t prepared(size_t target) const { return at(target).prepared; }
  // All commands of the operation that the stream was given.
  uint64_t commands(size_t target) const { return at(target).commands; }

 private:
  struct CommandBuffer {
    Target of;
    std::vector<tutti_command> collected;
    std::vector<const void*> sources;  // of the collected copies, in order
    uint32_t used = 0;                 // spare events taken
    uint64_t commands = 0, prepared = 0;
    uint64_t fresh = 0;  // of `commands`: in no stretch yet
  };
  // Commands of one stream, behind which it stores `end` into its queue's counter. The bound is kept by these.
  struct Stretch {
    size_t target;
    uint32_t end;
    uint64_t commands;
  };
  const CommandBuffer& at(size_t target) const { return buffers_[target]; }
  void require_taken(const CommandBuffer& buffer, tutti_status status) const;
  void enqueue(CommandBuffer& buffer, const tutti_command* commands, size_t n);
  tutti_event* spare_event(size_t target);
  void end_stretch(size_t target);
  uint64_t stretch() const { return most_ < 4 ? 1 : most_ / 4; }

  DeviceTables device_;
  uint64_t most_ = 0;
  const std::function<void()>* meanwhile_ = nullptr;
  std::vector<CommandBuffer> buffers_;  // the first `open_` of them are in use
  size_t open_ = 0;
  std::vector<Stretch> stretches_;  // oldest first, not known to be done
  uint64_t queued_ = 0;             // commands in them
  uint64_t fresh_ = 0;              // commands in none
};

}  // namespace tutti::core
