// SPDX-License-Identifier: Apache-2.0
//
// The nodes of a trace in one order in which both ends of a message act at the same time, so that a schedule needs no
// buffering: executors promise none. Plans may rely on it, as a ring does in which each rank first sends and then
// receives into what it sent. Where such messages wait for each other, one of them is received into scratch and moved
// to its place later.
#pragma once

#include <cstdint>
#include <vector>

#include "trace.hpp"

namespace tutti::plans {

struct Placed {
  enum class Part : uint8_t {
    whole,     // the node
    buffered,  // a message, received into scratch from chunk `buffer` on
    late       // what its receiver does with that
  } part = Part::whole;
  uint32_t node = 0;
  uint32_t level = 0;  // of a step (tutti/plugin/algorithm.h), from `first_level` on
  uint32_t buffer = 0;
};

struct Order {
  std::vector<Placed> placed;                  // levels never fall
  std::vector<std::vector<uint32_t>> scratch;  // the trace's, and the buffers
  uint32_t buffered = 0;                       // messages
  uint32_t slice_levels = 1;                   // how far slices are apart
};

constexpr uint32_t first_level = 2;  // level 1 is for what a rank does before

Order arrange(const Trace& trace);

}  // namespace tutti::plans
