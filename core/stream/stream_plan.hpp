// SPDX-License-Identifier: Apache-2.0
//
// A plan for streams: one rank's bound schedule in the order of schedule/stream_order.hpp, and how the plans of all
// ranks of a process are put into their streams, as a program (stream_program.hpp).
#pragma once

#include <tutti/registry.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/failure.hpp"
#include "engine/fabric/devices.hpp"
#include "schedule/stream_order.hpp"
#include "stream/device_gate.hpp"
#include "stream/stream_setup.hpp"
#include "stream/stream_writer.hpp"

namespace tutti::core {

// A call's shape as all ranks have it.
inline Shape common(Shape shape) {
  shape.in_place = 0;
  return shape;
}

// A way to or from a rank of another process, and the fragments that an operation sends along it.
struct StreamTraffic {
  uint32_t peer = 0, lane = 0;
  bool outgoing = false;
  std::vector<uint64_t> sizes;
};

class StreamChannel;
class StreamProgram;
struct WindowTable;

struct StreamPlan {
  inline static std::atomic<uint64_t> ids{0};

  // Another one for each plan of this process, and each table that it is bound to.
  uint64_t id = ids.fetch_add(1, std::memory_order_relaxed);
  Plan plan;
  std::shared_ptr<const Schedule> schedule;  // where blocks are unequal
  uint64_t scratch_bytes = 0;  // that a call needs; where all ranks know unequal blocks, whatever their sizes
  std::vector<StreamStep> steps;
  std::vector<StreamTraffic> traffic;    // by peer, lane and direction
  std::vector<StreamChannel*> channels;  // of `traffic`, once it is open
  uint64_t bytes = 0;                    // that this rank reads in the course of it
  uint64_t commands = 0;                 // and their sources: that it becomes, at most
  bool open = false;                     // all of its channels are there
  bool fuses = false;                    // it goes to the device in one launch
  std::optional<uint32_t> service;       // row of the communicator's report, once it has one
  // Not nullptr: ranks of other processes read buffers in place (windows.hpp).
  std::shared_ptr<const WindowTable> windows;
  // The programs of this plan and those of the other ranks of the process, kept by the lowest rank: one for each set
  // of forms in which the ranks have called, newest first.
  mutable std::vector<std::shared_ptr<StreamProgram>> programs;
};

// Binds a rank's plan, of a schedule that has levels, to streams. `way` says how a peer is reached, or reaches this
// rank. Where blocks are unequal bind_stream_blocks() is next. Throws Failure.
StreamPlan bind_stream_plan(Plan plan, Schedule schedule,
                            const std::function<StreamWay(uint32_t peer, bool outgoing)>& way);
// Puts the table's sizes and places into a plan, which is another one from then on. All of its ways stay, also those
// that carry nothing: a call with other counts opens no channel. Throws Failure, and then the plan is of no use.
void bind_stream_blocks(StreamPlan& plan, const BlockTable& table, uint32_t nranks, uint32_t rank,
                        const std::function<StreamWay(uint32_t peer, bool outgoing)>& way);

// Where fragment `number` of this operation lies on a way to or from another process, as the device sees it, and the
// flags before and behind it (stream_channel.hpp). Outgoing without data: the receiver reads the message where it is
// (windows.hpp).
struct StreamSlot {
  void* data = nullptr;
  uint32_t* awaited = nullptr;
  uint32_t* notified = nullptr;
};

// A rank's part in the issue of an operation, of either kind. Lives until issue() returns.
struct StreamPart {
  uint32_t rank = 0;
  uint32_t device = 0;
  void* stream = nullptr;
  // The stream stores `first` before the operation's first command and `last` after its last, and waits for `after`
  // before: the end of an operation in another stream. nullptr: it is recorded for later replays.
  const StreamCounter* counter = nullptr;
  std::optional<uint32_t> after;
  uint32_t first = 0, last = 0;
  StreamCounter* queue = nullptr;              // StreamWriter::Target has these two
  std::vector<tutti_event*>* spare = nullptr;  //
  DeviceGate::User* gate = nullptr;            // counts the operation when it is issued; nullptr: nobody does
  bool counted = false;                        // it has
  uint64_t commands = 0;                       // set by issue(): how many it became
  const std::map<uint32_t, Failure>* unreadable = nullptr;  // devices that this one cannot read, and why
  std::string read_by;  // set by issue() that fails: who may still read the buffers; "": nobody
};

// Throws Failure unless the part's device may read memory of another rank's.
void require_readable(const StreamPart& reader, uint32_t device, uint32_t rank);

// In a collective.
struct StreamLaunch : StreamPart {
  const StreamPlan* plan = nullptr;
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* scratch = nullptr;
  bool fuse = false;                                              // the only one, and small: as one launch
  std::atomic<bool> entered{false};                               // set by issue(): it has come to this stream
  std::function<StreamSlot(uint32_t way, uint64_t number)> slot;  // `way`: which of the plan's traffic
};

// Puts the operation of all ranks of this process, by rising rank, into their streams. The first call with these plans
// compiles their program; a later one allocates nothing. Where the device waits for other processes, no more than
// most_queued commands are left to it at a time: `meanwhile` is called until it has come to the end of earlier ones.
// Throws Failure when the device refuses, and passes on what `meanwhile` throws. Work that was put into streams before
// stays there, and a rank's stream comes to its end after all that read the rank's memory.
void issue(StreamWriter& writer, const DeviceTables& device, const std::vector<StreamLaunch*>& launches,
           const std::function<void()>& meanwhile);

}  // namespace tutti::core
