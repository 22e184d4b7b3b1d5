// SPDX-License-Identifier: Apache-2.0
#include "mutants/schedules/staged.hpp"

#include <fmt/format.h>

#include "mutants/schedules/schedule_mutants.hpp"

namespace tutti::conformance {
namespace {

tutti_span one(uint32_t buffer, uint32_t chunk) { return {buffer, chunk, 1, 0}; }

Step step(uint32_t kind, uint32_t peer, tutti_span dst, tutti_span src) {
  Step made;
  made.op.kind = kind;
  made.op.peer = peer;
  made.op.dst = dst;
  made.op.src = src;
  made.op.dependency_lane = TUTTI_NO_DEPENDENCY;
  return made;
}
Step after(Step made, uint32_t lane, size_t index) {
  made.op.dependency_lane = lane;
  made.op.dependency_step = static_cast<uint32_t>(index);
  return made;
}

// Lane 0 sends; lane 1 + k exchanges with the k-th neighbour through scratch chunk k. In lane 1 + k the copy out of
// scratch follows the receive, so reuse of the copy is ordered by the lane; `apart` puts the copies into lane 0 behind
// a dependency, where only separate scratch for each slice is safe.
Schedule staged(uint32_t n, uint32_t rank, bool in_place, uint32_t copies, bool apart) {
  Schedule s;
  s.flags = TUTTI_SCHEDULE_SLICED;
  s.cuts = {{1, 2}};
  s.scratch_copies = copies;
  s.lanes.resize(n);
  for (uint32_t k = 1; k < n; ++k) {
    const uint32_t to = (rank + k) % n, from = (rank + n - k) % n;
    for (uint32_t piece = 0; piece < 2; ++piece) {
      s.scratch.push_back({0, piece});
      const auto slot = static_cast<uint32_t>(s.scratch.size() - 1);
      auto& lane = s.lanes[k];
      lane.push_back(step(TUTTI_STEP_SEND, to, {}, one(TUTTI_BUFFER_IN, piece)));
      lane.push_back(step(TUTTI_STEP_RECV, from, one(TUTTI_BUFFER_SCRATCH, slot), {}));
      const size_t received = lane.size() - 1;
      const Step copy =
          step(TUTTI_STEP_COPY, 0, one(TUTTI_BUFFER_OUT, from * 2 + piece), one(TUTTI_BUFFER_SCRATCH, slot));
      if (apart)
        s.lanes[0].push_back(after(copy, k, received));
      else
        lane.push_back(copy);
    }
  }
  for (uint32_t piece = 0; piece < 2 && !in_place; ++piece)
    s.lanes[0].push_back(
        step(TUTTI_STEP_COPY, 0, one(TUTTI_BUFFER_OUT, rank * 2 + piece), one(TUTTI_BUFFER_IN, piece)));
  return s;
}

}  // namespace

void add_staged_sets(std::vector<NamedSet>& sets) {
  struct Form {
    uint32_t copies;
    bool apart;
  };
  for (const uint32_t n : {2u, 3u})
    for (const bool in_place : {false, true})
      for (const Form form : {Form{0, true}, Form{1, false}, Form{2, false}}) {
        NamedSet made;
        made.set.problem = {TUTTI_ALL_GATHER, n, 0, 8, {}, std::vector<bool>(n, in_place)};
        for (uint32_t rank = 0; rank < n; ++rank)
          made.set.schedules.push_back(staged(n, rank, in_place, form.copies, form.apart));
        made.name =
            fmt::format("staged all_gather n={} {} with {} scratch copies{}", n, in_place ? "in place" : "out of place",
                        form.copies, form.apart ? ", copied apart" : "");
        sets.push_back(std::move(made));
      }
}

}  // namespace tutti::conformance
