// SPDX-License-Identifier: Apache-2.0
//
// The form of one rank's schedule: everything that can be said without looking at another rank. After it holds, every
// span lies within its buffer, every peer and dependency exists, and the rank's own steps wait for each other in no
// cycle.
#pragma once

#include <tutti/schedule.h>

namespace tutti {

// The limits of a schedule. A schedule that needs more is refused, by the sink as soon as it is said.
struct ScheduleLimits {
  static constexpr uint32_t cuts = 1u << 20;
  static constexpr uint32_t scratch_chunks = 1u << 20;
  static constexpr uint32_t scratch_copies = 16;
  static constexpr uint64_t steps = 1u << 21;    // of one rank
  static constexpr uint64_t sources = 1u << 22;  // of all REDUCE steps of one rank
  static constexpr uint64_t chunks = 1u << 28;   // of all buffers of one rank
};

struct Finding {
  Fault fault = Fault::none;
  std::string text;
  explicit operator bool() const { return fault != Fault::none; }
};

// Fault::form, size_mismatch or overwritten with a text that names rank, lane and step; or none.
Finding check_form(const Problem& problem, uint32_t rank, const Schedule& schedule);

// Fault::form where ranks cut blocks at different points or disagree about slices; or none.
Finding check_alike(const std::vector<Schedule>& schedules);

// Fault::form for a problem that makes no sense (an unknown collective, a root that is no rank ...); or none.
Finding check_problem(const Problem& problem);

// "rank 3 lane 0 step 4 (send to 1: out[2])"
std::string where(uint32_t rank, uint32_t lane, uint64_t index, const Step& step);

inline bool sends(const tutti_step& op) {
  return op.kind == TUTTI_STEP_SEND || (op.kind == TUTTI_STEP_SIGNAL && !(op.flags & TUTTI_STEP_WAIT));
}
inline bool receives(const tutti_step& op) {
  return op.kind == TUTTI_STEP_RECV || op.kind == TUTTI_STEP_RECV_REDUCE ||
         (op.kind == TUTTI_STEP_SIGNAL && (op.flags & TUTTI_STEP_WAIT));
}
inline bool reads_src(const tutti_step& op) {
  return op.kind == TUTTI_STEP_SEND || op.kind == TUTTI_STEP_COPY || op.kind == TUTTI_STEP_RECV_REDUCE;
}
inline bool writes_dst(const tutti_step& op) {
  return op.kind == TUTTI_STEP_RECV || op.kind == TUTTI_STEP_RECV_REDUCE || op.kind == TUTTI_STEP_COPY ||
         op.kind == TUTTI_STEP_REDUCE;
}

}  // namespace tutti
