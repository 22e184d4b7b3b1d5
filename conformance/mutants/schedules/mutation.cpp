// SPDX-License-Identifier: Apache-2.0
#include "mutants/schedules/mutation.hpp"

#include <algorithm>
#include <utility>

namespace tutti::conformance {
namespace {

using Lane = std::vector<Step>;

Schedule& schedule_at(ScheduleSet& set, const StepPlace& p) { return set.schedules[p.rank]; }
Lane& lane_at(ScheduleSet& set, const StepPlace& p) { return schedule_at(set, p).lanes[p.lane]; }
Step& step_at(ScheduleSet& set, const StepPlace& p) { return lane_at(set, p)[p.step]; }

// Steps behind `step` of a lane move by `by`: dependencies on them follow.
void renumber(Schedule& schedule, const StepPlace& p, int by) {
  for (Lane& lane : schedule.lanes)
    for (Step& step : lane)
      if (step.op.dependency_lane == p.lane && step.op.dependency_step > p.step)
        step.op.dependency_step += static_cast<uint32_t>(by);
}

bool shift(tutti_span& span, uint32_t by) {
  if (!span.buffer) return false;
  span.first += by;
  return true;
}

bool rename(tutti_span& span) {
  if (!span.buffer) return false;
  span.buffer = span.buffer % 3 + 1;
  return true;
}

bool lengthen(tutti_span& span, uint32_t by) {
  if (!span.buffer || (by == ~0u && span.chunks < 2)) return false;
  span.chunks += by;
  return true;
}

bool drop(ScheduleSet& set, const StepPlace& p) {
  Lane& lane = lane_at(set, p);
  lane.erase(lane.begin() + static_cast<std::ptrdiff_t>(p.step));
  renumber(schedule_at(set, p), p, -1);
  return true;
}

// Both ends of a message: what only an algorithm that forgot it everywhere would do.
bool drop_message(ScheduleSet& set, const StepPlace& p) {
  const tutti_step op = step_at(set, p).op;
  if (op.kind != TUTTI_STEP_SEND) return false;
  const auto sends = [&](const Step& s) { return s.op.kind == TUTTI_STEP_SEND && s.op.peer == op.peer; };
  const Lane& mine = lane_at(set, p);
  auto number = std::count_if(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(p.step), sends);
  auto& lanes = set.schedules[op.peer].lanes;
  if (p.lane >= lanes.size()) return false;
  for (size_t i = 0; i < lanes[p.lane].size(); ++i) {
    const tutti_step& other = lanes[p.lane][i].op;
    const bool receives = other.kind == TUTTI_STEP_RECV || other.kind == TUTTI_STEP_RECV_REDUCE;
    if (!receives || other.peer != p.rank || number-- != 0) continue;
    drop(set, {op.peer, p.lane, i});
    return drop(set, p);
  }
  return false;
}

bool duplicate(ScheduleSet& set, const StepPlace& p) {
  Lane& lane = lane_at(set, p);
  const Step copied = lane[p.step];
  lane.insert(lane.begin() + static_cast<std::ptrdiff_t>(p.step), copied);
  renumber(schedule_at(set, p), p, 1);
  return true;
}

bool swap_next(ScheduleSet& set, const StepPlace& p) {
  Lane& lane = lane_at(set, p);
  if (p.step + 1 >= lane.size()) return false;
  std::swap(lane[p.step], lane[p.step + 1]);
  return true;
}

// Two steps trade their lanes' places: the same work on another lane.
bool swap_lane(ScheduleSet& set, const StepPlace& p) {
  auto& lanes = schedule_at(set, p).lanes;
  const size_t other = (p.lane + 1) % lanes.size();
  if (other == p.lane || p.step >= lanes[other].size()) return false;
  std::swap(lanes[p.lane][p.step], lanes[other][p.step]);
  return true;
}

bool rewire_peer(ScheduleSet& set, const StepPlace& p) {
  tutti_step& op = step_at(set, p).op;
  if (op.kind > TUTTI_STEP_RECV_REDUCE && op.kind != TUTTI_STEP_SIGNAL) return false;
  op.peer = (op.peer + 1) % set.problem.nranks;
  return true;
}

bool only_receive(ScheduleSet& set, const StepPlace& p) {
  tutti_step& op = step_at(set, p).op;
  if (op.kind != TUTTI_STEP_RECV_REDUCE) return false;
  op.kind = TUTTI_STEP_RECV;
  op.flags = 0;
  op.src = {};
  return true;
}

bool independent(ScheduleSet& set, const StepPlace& p) {
  tutti_step& op = step_at(set, p).op;
  if (op.dependency_lane == TUTTI_NO_DEPENDENCY) return false;
  op.dependency_lane = TUTTI_NO_DEPENDENCY;
  op.dependency_step = 0;
  return true;
}

bool earlier_dependency(ScheduleSet& set, const StepPlace& p) {
  tutti_step& op = step_at(set, p).op;
  if (op.dependency_lane == TUTTI_NO_DEPENDENCY || op.dependency_step == 0) return false;
  --op.dependency_step;
  return true;
}

bool same_source(ScheduleSet& set, const StepPlace& p) {
  Step& step = step_at(set, p);
  if (step.sources.empty()) return false;
  step.sources[0] = step.sources.back();
  return true;
}

// The step leaves for a lane of its own, where nothing but a dependency orders it.
bool own_lane(ScheduleSet& set, const StepPlace& p) {
  auto& lanes = schedule_at(set, p).lanes;
  const uint32_t kind = step_at(set, p).op.kind;
  if (kind != TUTTI_STEP_COPY && kind != TUTTI_STEP_REDUCE) return false;
  lanes.push_back({lanes[p.lane][p.step]});
  Step gap;
  gap.op.kind = TUTTI_STEP_NOP;
  gap.op.dependency_lane = TUTTI_NO_DEPENDENCY;
  lanes[p.lane][p.step] = gap;
  return true;
}

bool first_step(const StepPlace& p) { return p.lane == 0 && p.step == 0; }

bool one_scratch_copy(ScheduleSet& set, const StepPlace& p) {
  Schedule& schedule = schedule_at(set, p);
  if (!first_step(p) || schedule.scratch.empty() || schedule.scratch_copies == 1) return false;
  schedule.scratch_copies = 1;
  return true;
}

bool sliced(ScheduleSet& set, const StepPlace& p) {
  if (!first_step(p) || p.rank != 0) return false;
  for (Schedule& schedule : set.schedules) schedule.flags ^= TUTTI_SCHEDULE_SLICED;
  return true;
}

bool move_cut(ScheduleSet& set, const StepPlace& p) {
  Schedule& schedule = schedule_at(set, p);
  if (!first_step(p) || schedule.cuts.empty()) return false;
  schedule.cuts[0].q += 1;
  return true;
}

template <int By>
bool change_level(ScheduleSet& set, const StepPlace& p) {
  tutti_step& op = step_at(set, p).op;
  if (!op.level || (By < 0 && op.level == 1)) return false;
  op.level += static_cast<uint32_t>(By);
  return true;
}

bool swap_levels(ScheduleSet& set, const StepPlace& p) {
  Lane& lane = lane_at(set, p);
  if (p.step + 1 >= lane.size() || lane[p.step].op.level == lane[p.step + 1].op.level) return false;
  std::swap(lane[p.step].op.level, lane[p.step + 1].op.level);
  return true;
}

bool closer_slices(ScheduleSet& set, const StepPlace& p) {
  const uint32_t apart = set.schedules[0].slice_levels();
  if (!first_step(p) || p.rank != 0 || apart < 2) return false;
  for (Schedule& schedule : set.schedules)
    schedule.flags = (schedule.flags & ~TUTTI_SCHEDULE_SLICE_LEVELS(0xffffff)) | TUTTI_SCHEDULE_SLICE_LEVELS(apart - 1);
  return true;
}

constexpr Mutation table[] = {
    {"drop", "the step is left out", drop},
    {"drop_message", "a SEND and its RECV are left out", drop_message},
    {"duplicate", "the step is there twice", duplicate},
    {"swap", "the step comes after its successor", swap_next},
    {"swap_lane", "the step changes places with one of the next lane", swap_lane},
    {"peer", "it sends to or receives from the next rank", rewire_peer},
    {"src_up", "it reads the next chunk",
     [](ScheduleSet& s, const StepPlace& p) { return shift(step_at(s, p).op.src, 1); }},
    {"src_down", "it reads the chunk before",
     [](ScheduleSet& s, const StepPlace& p) { return shift(step_at(s, p).op.src, ~0u); }},
    {"dst_up", "it writes the next chunk",
     [](ScheduleSet& s, const StepPlace& p) { return shift(step_at(s, p).op.dst, 1); }},
    {"dst_down", "it writes the chunk before",
     [](ScheduleSet& s, const StepPlace& p) { return shift(step_at(s, p).op.dst, ~0u); }},
    {"src_buffer", "it reads another buffer",
     [](ScheduleSet& s, const StepPlace& p) { return rename(step_at(s, p).op.src); }},
    {"dst_buffer", "it writes another buffer",
     [](ScheduleSet& s, const StepPlace& p) { return rename(step_at(s, p).op.dst); }},
    {"src_longer", "it reads a chunk more",
     [](ScheduleSet& s, const StepPlace& p) { return lengthen(step_at(s, p).op.src, 1); }},
    {"src_shorter", "it reads a chunk less",
     [](ScheduleSet& s, const StepPlace& p) { return lengthen(step_at(s, p).op.src, ~0u); }},
    {"load", "LOAD is toggled",
     [](ScheduleSet& s, const StepPlace& p) { return (step_at(s, p).op.flags ^= TUTTI_STEP_LOAD, true); }},
    {"final", "FINAL is toggled",
     [](ScheduleSet& s, const StepPlace& p) { return (step_at(s, p).op.flags ^= TUTTI_STEP_FINAL, true); }},
    {"incoming_left", "the operands change sides",
     [](ScheduleSet& s, const StepPlace& p) { return (step_at(s, p).op.flags ^= TUTTI_STEP_INCOMING_LEFT, true); }},
    {"only_receive", "it overwrites instead of reducing", only_receive},
    {"independent", "its dependency is forgotten", independent},
    {"early", "it depends on the step before the right one", earlier_dependency},
    {"same_source", "a source is taken twice, another not at all", same_source},
    {"own_lane", "a local step moves to a lane of its own", own_lane},
    {"one_scratch_copy", "slices share one scratch copy", one_scratch_copy},
    {"sliced", "the schedules say SLICED, or do not any more", sliced},
    {"cut", "one rank cuts blocks elsewhere", move_cut},
    {"level_up", "its level is one higher", change_level<1>, true},
    {"level_down", "its level is one lower", change_level<-1>, true},
    {"swap_levels", "it has its successor's level, which has its own", swap_levels, true},
    {"closer_slices", "slices are one level less apart", closer_slices, true},
};

}  // namespace

std::span<const Mutation> mutations() { return table; }

}  // namespace tutti::conformance
