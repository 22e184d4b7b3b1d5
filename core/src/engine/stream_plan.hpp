// SPDX-License-Identifier: Apache-2.0
//
// A plan for streams: one rank's bound schedule in the order of schedule/stream_order.hpp, and how the plans of all
// ranks of a process are put into their streams.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/plan.hpp"
#include "schedule/stream_order.hpp"

namespace tutti::core {

// A way to or from a rank of another process, and the fragments that an operation sends along it.
struct StreamTraffic {
  uint32_t peer = 0, lane = 0;
  bool outgoing = false;
  std::vector<uint64_t> sizes;
};

struct StreamPlan {
  Plan plan;
  std::vector<StreamStep> steps;
  std::vector<StreamTraffic> traffic;
  uint64_t bytes = 0;   // that this rank reads in the course of it
  bool open = false;    // all of its channels are there
  bool fuses = false;   // it goes to the device in one launch
  bool direct = false;  // ranks of other processes read buffers where they are (direct_memory.hpp)
  // The same shape in that form, once it was asked for.
  std::unique_ptr<StreamPlan> direct_form;
};

// Binds the schedules of all ranks, out of place and in place, for `rank`. `way` says how ranks reach each other.
// Throws Failure.
StreamPlan bind_stream_plan(const Problem& problem, const std::vector<Schedule> (&forms)[2], const Shape& shape,
                            uint64_t slices, uint32_t rank, std::vector<Link>& links,
                            const std::function<StreamWay(uint32_t from, uint32_t to)>& way);

// Where fragment `number` of this operation lies on a way to or from another process, as the device sees it, and the
// words before and behind it (stream_channel.hpp). Outgoing without data: the receiver reads the message where it is
// (direct_board.hpp).
struct StreamSlot {
  void* data = nullptr;
  uint32_t* awaited = nullptr;
  uint32_t* told = nullptr;
};

// Commands that a process may have in a device's queue while it moves bytes for them. A full queue makes whoever adds
// to it wait, which must not happen to the thread that the queue waits for: devices take about a thousand.
constexpr uint64_t most_queued = 256;

// What may go to the device in one launch, which does everything by a few of its processors: so many bytes read, and
// steps, each of which becomes at most four commands. Nobody has measured where one launch stops being faster.
constexpr uint64_t most_fused_bytes = 64 << 10;
constexpr uint64_t most_fused_steps = most_queued / 4;

// What a rank brings to the issue of one operation. Lives until issue() returns.
struct StreamLaunch {
  uint32_t rank = 0;
  const StreamPlan* plan = nullptr;
  std::byte* in = nullptr;
  std::byte* out = nullptr;
  std::byte* scratch = nullptr;
  uint32_t device = 0;
  void* stream = nullptr;
  tutti_mark* after = nullptr;                // what the operation has to come after, or nullptr
  tutti_mark* begin = nullptr;                // set before its first command; nullptr: not wanted
  tutti_mark* end = nullptr;                  // and after its last
  bool fuse = false;                          // the only one, and small: as one launch, if the device takes it
  bool fused = false;                         // set by issue(): it took it
  bool recorded = false;                      // for later replays: nothing runs now
  uint64_t commands = 0;                      // set by issue(): how many it became
  std::vector<tutti_mark*>* spare = nullptr;  // marks of the device for use within; made as needed, kept by the owner
  std::function<StreamSlot(uint32_t peer, uint32_t lane, bool outgoing, uint64_t number)> slot;
};

// Puts the operation of all ranks of this process into their streams, by rising level. Ranks of the process read each
// other's memory and are ordered by marks, all others by the words of their slots. Where there are words, no more than
// most_queued commands are left to the device at a time: `meanwhile` is called until it has come to the end of earlier
// ones. Throws Failure when the device refuses, and what `meanwhile` throws; what was put into streams before stays
// there.
void issue(const DeviceTables& device, const std::vector<StreamLaunch*>& launches,
           const std::function<void()>& meanwhile);

}  // namespace tutti::core
