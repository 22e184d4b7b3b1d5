// SPDX-License-Identifier: Apache-2.0
//
// Calls and messages of all ranks in the order in which they depend on each other, without times:
//
//   a rank's    come one after another: calls and sends as they begin, receives as they end
//   a receive   comes after its send
//   a call      comes at the same place on all ranks of its communicator
//
// So a program that does the same in every run has the same sequence in every run, however long things take. Places are
// numbers from 0 on; each event has the least one that these rules allow. Ranks are processes: those of the largest
// communicator, and in it they are numbered. Calls of other communicators belong to the process that made them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "timeline.hpp"

namespace trace {

struct Event {
  enum class Kind { call, send, receive };
  Kind kind = Kind::call;
  std::string communicator;  // "": the largest
  size_t place = 0;
  Call call;                               // of a call
  std::vector<uint32_t> ranks;             // that are in it
  uint64_t bytes = 0;                      // of a message
  uint32_t peer = 0, tag = 0;              // a rank of the largest communicator
  std::optional<size_t> place_of_receive;  // of a send whose receive is recorded, too
};

struct Sequence {
  std::string program;
  std::vector<uint32_t> ranks;
  std::vector<std::vector<Event>> events;  // of each of `ranks`, by place
  size_t places = 0;
};

// The calls between barrier number `barrier` of the largest communicator, from 1 on, and the next one; 0: all calls.
// Throws std::runtime_error where ranks are threads of one process, or a rank has no such barriers.
Sequence sequence_of(const Timeline& timeline, size_t barrier);

}  // namespace trace
