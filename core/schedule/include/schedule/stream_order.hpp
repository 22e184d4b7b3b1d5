// SPDX-License-Identifier: Apache-2.0
//
// A schedule as one sequence: the order in which a rank's steps are put into a stream, where each waits for the one
// before it and a wait holds up everything behind it.
//
// The order follows the steps' levels (tutti/plugin/algorithm.h), so a rank needs only its own schedule. Items are
// ordered by {level, fragment, putting before fetching}. A message is cut into fragments of what its way holds at once;
// `fragment` counts those of one way and level. Fragment k of a way with `slots` places is put there after fragment k -
// slots was fetched. Everything that must precede an item, on any rank, then comes before it in this order:
//
//   - a local step, and the first fragment of a message, wait for steps of lower level; a message is over, at both
//     ends, when its last fragment has been fetched, which belongs to the same level as its first
//   - a fragment is fetched after it was put: both ends have the same level and the same fragment number
//   - a fragment is put after one `slots` fragments before it was fetched: levels do not fall along a way, so that one
//     has a lower level, or the same level and a lower number
//
// Fragments, their numbers and empty messages follow from sizes that both ends of a way know. So the order holds for
// unequal blocks, too, of which a rank knows only its own.
//
// Streams, or several that share one hardware queue, that carry out steps in this order cannot deadlock: of all items
// that are not done, the first can run.
#pragma once

#include <tutti/schedule.h>

#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <vector>

namespace tutti {

// A local step of one part of memory, or one end of one fragment of a message.
struct StreamStep {
  uint64_t level = 0;           // the place in the order that all ranks share
  uint32_t lane = 0, step = 0;  // in the rank's schedule
  uint32_t slice = 0;
  uint64_t offset = 0, bytes = 0;  // a message: which bytes of the part
  uint64_t number = 0;             // a message: how many fragments went the same way (peer, lane, direction) before
  uint32_t part = 0;               // in slices, and where blocks are unequal: which chunk of the step's run
};

// A way from one rank to another.
struct StreamWay {
  uint64_t fragment = UINT64_MAX;  // bytes; UINT64_MAX: receivers read where the sender has it
  uint32_t slots = 0;              // fragments that it holds; 0: any number
};

using StreamWayKey = std::tuple<uint32_t, uint32_t, bool>;  // peer, lane, outgoing

struct StreamShape {
  uint64_t count = 0;  // elements of a block
  uint32_t element_bytes = 1;
  uint64_t slices = 1;
  std::function<StreamWay(uint32_t peer, bool outgoing)> way;
  // Where blocks are unequal: the elements of a chunk of a buffer, or of scratch. Then there is one slice.
  std::function<uint64_t(uint32_t buffer, uint32_t chunk)> length = {};
};

// The sequence of a rank whose schedule has levels, with empty data steps left out. Returns "" or why there is none.
std::string order_for_stream(const Schedule& schedule, const StreamShape& shape, std::vector<StreamStep>* order);

// Gives levels to all ranks' verified schedules, which have none: `forms` are those out of place and in place, in this
// order. Returns "" or why there are none: the ranks would wait for each other.
std::string give_levels(const Problem& problem, std::vector<Schedule> (&forms)[2]);

}  // namespace tutti
