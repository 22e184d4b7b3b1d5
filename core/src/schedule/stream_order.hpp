// SPDX-License-Identifier: Apache-2.0
//
// A schedule as one sequence: the order in which a rank's steps are put into a stream, where each waits for the one
// before it and a wait holds up everything behind it.
//
// Every step, and every fragment of a message, gets a level, so that whatever must precede it on any rank has a lower
// one. All ranks compute the same levels. A stream, or several that share one hardware queue, that carries out steps by
// rising level cannot lock up: of all steps that are not done, one of lowest level can be carried out.
//
// A message is cut into fragments of what its way holds at once, and fragment k of a way with `slots` places is put
// there after fragment k - slots was fetched. Whether a rank's call is in place is known to it alone, so levels respect
// what both forms of every rank demand.
#pragma once

#include <tutti/schedule.h>

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace tutti {

// A local step, or one end of one fragment of a message.
struct StreamStep {
  uint64_t level = 0;
  uint32_t lane = 0, step = 0;  // in the rank's schedule
  uint32_t slice = 0;
  uint64_t offset = 0, bytes = 0;  // a message: which of the step's bytes
  uint64_t number = 0;             // a message: how many fragments went the same way (peer, lane, direction) before
};

// A way from one rank to another.
struct StreamWay {
  uint64_t fragment = UINT64_MAX;  // bytes; UINT64_MAX: receivers read where the sender has it
  uint32_t slots = 0;              // fragments that it holds; 0: any number
};

struct StreamShape {
  uint64_t count = 0;  // elements of a block
  uint32_t element_bytes = 1;
  uint64_t slices = 1;
  std::function<StreamWay(uint32_t from, uint32_t to)> way;
};

// The sequence of `rank`, by rising level, with empty data steps left out. `forms` are all ranks' schedules out of
// place and in place, in this order, verified. Returns "" or why there is no such order: the ranks would wait for each
// other.
std::string order_for_stream(const Problem& problem, const std::vector<Schedule> (&forms)[2], bool in_place,
                             uint32_t rank, const StreamShape& shape, std::vector<StreamStep>* order);

}  // namespace tutti
