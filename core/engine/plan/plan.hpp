// SPDX-License-Identifier: Apache-2.0
//
// A plan: one rank's schedule bound to a communicator's links, a shape, a type and an operator. It holds no address:
// those are arguments of each launch. Cached by shape.
#pragma once

#include <tutti/schedule.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/choose/native.hpp"
#include "engine/choose/scratch_layout.hpp"
#include "engine/choose/shape.hpp"
#include "engine/fabric/link.hpp"
#include "engine/plan/block_table.hpp"
#include "engine/plan/brief_plan.hpp"
#include "engine/plan/move_trial.hpp"
#include "kernels/kernels.hpp"
#include "kernels/user_operator.hpp"
#include "record/call.hpp"

namespace tutti::core {

// Elements of a buffer.
struct Operand {
  uint32_t buffer = 0;  // TUTTI_BUFFER_*
  uint32_t chunk = 0;   // scratch: the first chunk, which has its own place in each copy
  uint64_t first = 0;   // element offset; scratch in copies: of the whole-chunk layout (unused there)
  uint64_t length = 0;  // elements of the whole operand, all slices
  // In slices, and where blocks are unequal, a run of chunks lies apart: its chunks are operands of their own, in
  // Plan::parts. 0: it is one part.
  uint32_t parts = 0;
  uint32_t first_part = 0;
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

// Where a plan whose numbers travel as codes keeps those of IN and OUT: in the launch's scratch. The schedule moves and
// reduces these, so it runs in its form out of place, and each block begins with a unit of its own.
struct CodePlaces {
  uint64_t in = 0, out = 0;              // offsets
  uint64_t in_bytes = 0, out_bytes = 0;  // sizes
};

// The means to bind a plan of a collective with unequal blocks, again for each table.
struct UnequalBlocks {
  std::vector<tutti_cut> cuts;  // of the schedule, as the next
  std::vector<tutti_extent> scratch;
  std::vector<uint64_t> scratch_begins;
  uint64_t way_hash = 0;  // of the algorithm
  BlockTable table;       // that it is bound to
  BlockTable units;       // of a wire format: the same in units, one block after another
  const BlockTable& carried(const Shape& shape) const { return shape.wire ? units : table; }
};

struct Plan {
  Shape shape;
  uint64_t count = 0;                   // of the call, as ranks compare it
  const char* algorithm = "";           // its name
  const NativeGroup* native = nullptr;  // carries it out instead of the steps
  uint64_t slices = 1;
  uint64_t schedule_hash = 0;
  uint32_t element_bytes = 1;  // of what moves
  std::vector<std::vector<BoundStep>> lanes;
  std::vector<Operand> sources;
  std::vector<Operand> parts;
  uint32_t most_parts = 0;   // of any operand
  uint32_t most_sources = 1;  // of any step
  std::vector<Link*> links;  // all that the steps use
  ReduceFunction reduce = nullptr;
  const UserOperator* user = nullptr;    // reduces by it
  ScratchLayout scratch;
  CodePlaces codes;  // of a wire format
  uint64_t in_bytes = 0, out_bytes = 0;  // sizes of the user's buffers at this rank; 0: none
  uint64_t call_bytes = 0;               // what reports count
  std::string transports;
  MoveTrial* moves = nullptr;            // the one that its launches take part in, once it is known
  uint64_t launches = 0;
  uint64_t common_hash = 0;  // of what must be equal on all ranks to carry the shape out
  UnequalBlocks unequal;
  bool fresh = true;     // no launch of it has completed
  std::shared_ptr<const BriefPlan> brief;  // nullptr while it is fresh, and where it has none
  uint32_t service = 0;  // row of the communicator's report
  RecordedCall recorded;  // its calls, once one was made
  uint32_t pins = 0;     // launches in flight, and persistent requests
  uint64_t last_used = 0;
};

// The arguments of one launch.
struct HostBuffers {
  const void* in = nullptr;
  void* out = nullptr;
  Factor factor{};   // of a premul_sum
  uint64_t tag = 0;  // of the application
};

inline const Operand& part_of(const Plan& plan, const Operand& operand, uint32_t part) {
  return operand.parts ? plan.parts[operand.first_part + part] : operand;
}

// The position of one slice in its buffer, for an operand that is one part.
struct Piece {
  uint64_t offset = 0;  // bytes
  uint64_t bytes = 0;
};
inline Piece piece_of(const Plan& plan, const Operand& operand, uint64_t slice) {
  const uint64_t size = plan.element_bytes;
  if (plan.slices == 1) return {operand.first * size, operand.length * size};
  const uint64_t begin = slice_begin(operand.length, slice, plan.slices);
  const uint64_t bytes = (slice_begin(operand.length, slice + 1, plan.slices) - begin) * size;
  if (operand.buffer == TUTTI_BUFFER_SCRATCH && plan.scratch.copies)
    return {slice % plan.scratch.copies * plan.scratch.copy_bytes + plan.scratch.slots[operand.chunk], bytes};
  return {(operand.first + begin) * size, bytes};
}

// The call of a shape, as ranks compare it, without what only the plan has.
inline Call call_of(const Shape& s, uint64_t count, uint64_t tag) {
  Call call{0, count, 0, s.op, s.root, static_cast<uint16_t>(s.collective), static_cast<uint16_t>(s.dtype)};
  if (s.order != Order::free) call.order = static_cast<uint8_t>(s.order);
  if (s.algorithms) call.algorithms = static_cast<uint16_t>(s.algorithms % 65535 + 1);
  call.wire = static_cast<uint8_t>(s.wire);
  call.tag = tag;
  return call;
}
inline Call call_of(const Plan& plan, uint64_t sequence, uint64_t tag) {
  Call call = call_of(plan.shape, plan.count, tag);
  call.sequence = sequence;
  call.plan = plan.common_hash;
  if (plan.user) name_user_op(call, plan.user->name, plan.user->commutative);
  return call;
}

// Gives the codes of a wire format, so many units, their places behind the schedule's scratch.
void place_codes(Plan& plan, uint64_t in_units, uint64_t out_units);

// Binds a schedule, to blocks of no elements where blocks are unequal: bind_blocks() is next. `links` are the
// communicator's, by peer; entries for peers that the schedule does not use may be anything. `user`: of an operator of
// the application; it outlives the plan. Throws Failure.
Plan bind_plan(const Schedule& schedule, const Shape& shape, uint64_t slices, uint32_t nranks, uint32_t rank,
               std::vector<Link>& links, const UserOperator* user = nullptr);

// Can a link of the plan send ordinary memory by reference?
bool sends_by_reference(const Plan& plan);
// Does this rank send, and receive nothing?
bool only_sends(const Plan& plan);
// "shm+tcp": the transports of the plan's links. One that is not connected yet may come to have another.
std::string transports_of(const Plan& plan);

// The plan of a call that a plugin carries out.
Plan native_plan(const NativeGroup& group, const Shape& shape, uint32_t nranks, uint32_t rank);

}  // namespace tutti::core
