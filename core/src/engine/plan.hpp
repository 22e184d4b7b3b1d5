// SPDX-License-Identifier: Apache-2.0
//
// A plan: one rank's schedule bound to a communicator's links, a shape, a type and an operator. It holds no address:
// those are arguments of each launch. Cached by shape.
#pragma once

#include <tutti/schedule.h>

#include <cstdint>
#include <string>
#include <vector>

#include "engine/link.hpp"
#include "engine/store_trial.hpp"
#include "host_device/kernels.hpp"

namespace tutti::core {

// What makes two calls the same to a plan.
struct Shape {
  uint64_t count = 0;
  uint32_t collective = 0;
  uint32_t dtype = 0;
  uint32_t op = 0;
  uint32_t root = 0;
  uint32_t in_place = 0;
  bool operator==(const Shape&) const = default;
};

// Elements of a buffer.
struct Operand {
  uint32_t buffer = 0;  // TUTTI_BUFFER_*
  uint32_t chunk = 0;   // scratch: the first chunk, which has its own place in each copy
  uint64_t first = 0;   // element offset; scratch in copies: of the whole-chunk layout (unused there)
  uint64_t length = 0;  // elements of the whole operand, all slices
};

struct BoundStep {
  uint32_t kind = TUTTI_STEP_NOP;
  bool incoming_left = false;
  bool forwards = false;   // RECV, RECV_REDUCE: the next step sends what arrives
  bool forwarded = false;  // SEND: follows what the previous step receives
  uint64_t divisor = 0;
  Link* out = nullptr;
  Link* in = nullptr;
  Operand dst;
  Operand src;
  uint32_t first_source = 0;  // REDUCE: into Plan::sources
  uint32_t sources = 0;
  // Distances back in the lane's sequence of steps, over slices; 0: none.
  uint32_t after_conflict = 0;  // to the last earlier step that touches a conflicting chunk: it must have completed
  uint32_t after_out = 0;       // to the last earlier step that sends to the same peer: it must have been handed over
  uint32_t after_in = 0;        // to the last earlier step that receives from the same peer
  uint32_t dependency_lane = TUTTI_NO_DEPENDENCY;
  uint32_t dependency_step = 0;
};

struct Plan {
  Shape shape;
  const tutti_algorithm* algorithm = nullptr;
  uint64_t slices = 1;
  uint32_t element_bytes = 1;
  std::vector<std::vector<BoundStep>> lanes;
  std::vector<Operand> sources;
  std::vector<Link*> links;  // all that the steps use
  ReduceFunction reduce = nullptr;
  uint64_t scratch_bytes = 0;            // of one launch
  uint64_t scratch_copy_bytes = 0;       // distance between two slices' copies
  uint32_t scratch_copies = 0;           // 0: laid out whole
  std::vector<uint64_t> scratch_slot;    // in copies: each chunk's byte offset in a copy
  uint64_t in_bytes = 0, out_bytes = 0;  // sizes of the user's buffers at this rank; 0: none
  uint64_t call_bytes = 0;               // what reports count
  std::string transports;
  StoreTrial stores;
  uint32_t service = 0;  // row of the communicator's report
  uint32_t pins = 0;     // launches in flight
  uint64_t last_used = 0;
};

// Binds a schedule. `links` are the communicator's, by peer; entries for peers that the schedule does not use may be
// anything. Throws Failure.
Plan bind_plan(const Schedule& schedule, const Shape& shape, uint64_t slices, uint32_t nranks, uint32_t rank,
               std::vector<Link>& links);

// The scratch that a launch of the schedule would need, in bytes.
uint64_t scratch_need(const Schedule& schedule, uint64_t count, uint32_t element_bytes, uint64_t slices);

}  // namespace tutti::core
