// SPDX-License-Identifier: Apache-2.0
//
// A plan carried out once by symbols, on all ranks: proved on the way, and turned into nodes for a schedule.
//
// Proved is: every receive meets what was sent for it; no thread block waits for ever; no cell is read before it is
// written; conflicting accesses of a rank are ordered by thread blocks, dependencies and messages, so that every order
// in which the thread blocks may run gives the same; each contribution is reduced once; and the output holds at the end
// what the collective demands.
//
// Places. A schedule writes neither the input nor a chunk of one piece into the place of another piece. So what a plan
// writes gets a place of its own: the output's chunk where it is one of that piece, else a chunk of scratch for that
// cell and piece. A cell that still holds its first value is read from the input. A place is the same in place and out
// of place, where the plan's order allows it (Trace::in_place_as_is).
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan.hpp"
#include "shape.hpp"

namespace tutti::plans {

// A chunk of a rank in a schedule's terms.
struct Place {
  Buffer buffer = Buffer::in;
  uint32_t index = 0;
  bool operator==(const Place&) const = default;
  Place next() const { return {buffer, index + 1}; }
};

// One chunk of a node.
struct Chunk {
  Place src;           // message (at the sender), copy
  Place dst;           // message (at the receiver), copy, reduce
  Place with;          // of a message that is reduced: the local operand at the receiver
  bool final = false;  // dst is complete then
  bool left = false;   // the incoming value, or the second source, is the left operand
};

// An operation that moves data: a message with both of its ends, or a local one.
struct Node {
  enum class Kind : uint8_t { message, copy, reduce } kind = Kind::copy;
  bool reduced = false;  // message: it is reduced into dst
  uint32_t from = 0, to = 0;
  uint32_t channel = 0;
  uint32_t first = 0, count = 0;  // in Trace::chunks
  uint32_t sources = 0;           // reduce: how many for each chunk ...
  uint32_t first_source = 0;      // ... from here on in Trace::sources
};

// The ends of node k are 2k, the sender's (or the whole of a local node), and 2k+1, the receiver's.
constexpr uint32_t sender_end(uint32_t node) { return 2 * node; }
constexpr uint32_t receiver_end(uint32_t node) { return 2 * node + 1; }

struct Trace {
  Shape shape{};
  uint32_t root = 0;
  std::vector<Node> nodes;  // in the order in which they were sent, or done
  std::vector<Chunk> chunks;
  std::vector<Place> sources;
  std::vector<std::pair<uint32_t, uint32_t>> edges;  // ends: the first comes before the second
  std::vector<uint32_t> ends;                        // in the order in which they were carried out
  std::vector<std::vector<uint32_t>> scratch;        // by rank: the piece of each chunk
  // Chunks of the output that hold their first value to the end: copied from the input unless they are in place.
  std::vector<std::vector<uint32_t>> kept;  // by rank
  // Nothing is read from the input after the output's chunk that is the same in place was written.
  bool in_place_as_is = true;
};

// How a plan is carried out.
struct Carried {
  bool in_place = false;   // input and output are one, as the plan means it
  bool one_place = false;  // the edges hold for ranks in place as well
  uint32_t root = 0;
};

// Throws an Error with the place of what is wrong.
Trace carry_out(const Plan& plan, const Carried& how);

// The root of a plan whose collective has one: files do not name it. 0 where it cannot be told.
uint32_t find_root(const Plan& plan);

}  // namespace tutti::plans
