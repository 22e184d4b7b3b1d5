// SPDX-License-Identifier: Apache-2.0
//
// A plan for streams: one rank's bound schedule in the order of schedule/stream_order.hpp, and how the plans of all
// ranks of a process are put into their streams, as a program (stream_program.hpp).
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "plan/plan.hpp"
#include "schedule/stream_order.hpp"
#include "stream/device_gate.hpp"
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
  // Another one for each plan of this process.
  static uint64_t next_id();

  uint64_t id = next_id();
  Plan plan;
  std::vector<StreamStep> steps;
  std::vector<StreamTraffic> traffic;
  std::vector<StreamChannel*> channels;  // of `traffic`, once it is open and not in windows
  uint64_t bytes = 0;                    // that this rank reads in the course of it
  bool open = false;                     // all of its channels are there
  bool fuses = false;                    // it goes to the device in one launch
  std::optional<uint32_t> service;       // row of the communicator's report, once it has one
  // Not nullptr: ranks of other processes read buffers in place (windows.hpp).
  std::shared_ptr<const WindowTable> windows;
  // The programs of this plan and those of the other ranks of the process, kept by the lowest rank: one for each set
  // of forms in which the ranks have called, newest first.
  mutable std::vector<std::shared_ptr<StreamProgram>> programs;
};

// Binds a schedule that has levels for `rank`. `way` says how a peer is reached, or reaches this rank. Throws Failure.
StreamPlan bind_stream_plan(const Schedule& schedule, const Shape& shape, uint64_t slices, uint32_t nranks,
                            uint32_t rank, std::vector<Link>& links,
                            const std::function<StreamWay(uint32_t peer, bool outgoing)>& way);

// Where fragment `number` of this operation lies on a way to or from another process, as the device sees it, and the
// flags before and behind it (stream_channel.hpp). Outgoing without data: the receiver reads the message where it is
// (windows.hpp).
struct StreamSlot {
  void* data = nullptr;
  uint32_t* awaited = nullptr;
  uint32_t* told = nullptr;
};

// The limits of one launch, which does everything by a few of its processors: so many bytes read, and
// steps, each of which becomes at most four commands. Nobody has measured where one launch stops being faster.
constexpr uint64_t most_fused_bytes = 64 << 10;
constexpr uint64_t most_fused_steps = most_queued / 4;

// A rank's part in the issue of one operation. Lives until issue() returns.
struct StreamLaunch {
  uint32_t rank = 0;
  const StreamPlan* plan = nullptr;
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* scratch = nullptr;
  uint32_t device = 0;
  void* stream = nullptr;
  tutti_event* after = nullptr;                // what the operation has to come after, or nullptr
  tutti_event* begin = nullptr;                // set before its first command; nullptr: not wanted
  tutti_event* end = nullptr;                  // and after its last
  bool fuse = false;                           // the only one, and small: as one launch, if the device takes it
  bool fused = false;                          // set by issue(): it took it
  bool recorded = false;                       // for later replays: nothing runs now
  DeviceGate::User* gate = nullptr;            // counts the operation when it is issued; nullptr: nobody does
  bool counted = false;                        // it has
  uint64_t commands = 0;                       // set by issue(): how many it became
  std::string read_by;                         // set by issue() that fails: who may still read the buffers; "": nobody
  std::vector<tutti_event*>* spare = nullptr;  // events of the device for use within; made as needed, kept by the owner
  std::function<StreamSlot(uint32_t way, uint64_t number)> slot;  // `way`: which of the plan's traffic
};

// Puts the operation of all ranks of this process, by rising rank, into their streams. The first call with these plans
// compiles their program; a later one allocates nothing. Where the device waits for other processes, no more than
// most_queued commands are left to it at a time: `meanwhile` is called until it has come to the end of earlier ones.
// Throws Failure when the device refuses, and what `meanwhile` throws. What was put into streams before stays there,
// and a rank's stream comes to its end after all that read the rank's memory.
void issue(StreamWriter& writer, const DeviceTables& device, const std::vector<StreamLaunch*>& launches,
           const std::function<void()>& meanwhile);

}  // namespace tutti::core
