// SPDX-License-Identifier: Apache-2.0
//
// Adjacent steps that one pass over memory serves: what was just received is forwarded.
#include <tutti/schedule.h>

namespace tutti {
namespace {

bool fusible(const tutti_step& first, const tutti_step& second) {
  const bool receives = first.kind == TUTTI_STEP_RECV || first.kind == TUTTI_STEP_RECV_REDUCE;
  if (!receives || second.kind != TUTTI_STEP_SEND) return false;
  // The pair starts together: a SEND that waits for another lane must not hold its RECV back, which could deadlock.
  if (second.dependency_lane != TUTTI_NO_DEPENDENCY || (second.flags & TUTTI_STEP_LOAD)) return false;
  return first.dst.buffer == second.src.buffer && first.dst.first == second.src.first &&
         first.dst.chunks == second.src.chunks;
}

}  // namespace

std::vector<std::vector<bool>> find_fusions(const Schedule& schedule) {
  std::vector<std::vector<bool>> fused;
  fused.reserve(schedule.lanes.size());
  for (const auto& lane : schedule.lanes) {
    auto& marks = fused.emplace_back(lane.size(), false);
    for (size_t i = 0; i + 1 < lane.size(); ++i) marks[i] = fusible(lane[i].op, lane[i + 1].op);
  }
  return fused;
}

}  // namespace tutti
