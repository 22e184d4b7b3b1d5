// SPDX-License-Identifier: Apache-2.0
#include "path.hpp"

#include <algorithm>

#include "steps.hpp"

namespace tutti::simulation {
namespace {

// The first instance of each lane, and one past the last.
std::vector<uint64_t> bases_of(const Schedules& schedules) {
  std::vector<uint64_t> bases{0};
  for (const LaneOfRank& lane : schedules.lanes()) bases.push_back(bases.back() + lane.length * schedules.slices());
  return bases;
}

// Says what the time between the step before on the path and this one's end is made of.
void explain(PathStep& at, const CompactStep& step, const Network& network, const Processor& processor) {
  Route route;
  if (step.flags & (does_send | does_receive)) {
    network.route(step.flags & does_send ? at.rank : step.peer, step.flags & does_send ? step.peer : at.rank, &route);
    at.work = processor.message;
  }
  const auto bytes = double(at.bytes);
  if (step.flags & does_send) at.transfer = bytes * route.per_byte;
  if (step.flags & does_receive) at.latency = route.latency;
  if (step.kind == TUTTI_STEP_RECV_REDUCE) {
    const bool overlaps = processor.fragment && processor.fragment < at.bytes;
    at.work += (overlaps ? double(processor.fragment) : bytes) * processor.reduce_per_byte;
  }
  if (step.kind == TUTTI_STEP_COPY || step.kind == TUTTI_STEP_REDUCE) at.work = work_of(processor, step, at.bytes);
  // Steps that began before the one before them ended took part of it.
  at.waiting = at.end - at.begin;
  for (double* part : {&at.latency, &at.transfer, &at.work}) {
    *part = std::min(*part, at.waiting);
    at.waiting -= *part;
  }
}

}  // namespace

std::vector<PathStep> critical_path(const Schedules& schedules, const Network& network, const Processor& processor,
                                    const Instances& instances, uint32_t last) {
  std::vector<PathStep> path;
  const std::vector<uint64_t> bases = bases_of(schedules);
  for (uint32_t id = last; id != no_instance; id = instances.causes[id]) {
    const auto lane = uint32_t(std::upper_bound(bases.begin(), bases.end(), uint64_t{id}) - bases.begin() - 1);
    const LaneOfRank& of = schedules.lanes()[lane];
    PathStep at;
    at.rank = of.rank;
    at.lane = lane - schedules.first_lane()[of.rank];
    at.slice = (id - bases[lane]) / of.length;
    at.step = uint32_t((id - bases[lane]) % of.length);
    const CompactStep& step = schedules.steps()[of.first + at.step];
    at.kind = step.kind;
    at.peer = step.flags & (does_send | does_receive) ? step.peer : at.rank;
    const uint64_t all = schedules.sizes()[step.size];
    at.bytes = slice_begin(all, at.slice + 1, schedules.slices()) - slice_begin(all, at.slice, schedules.slices());
    at.end = instances.ends[id];
    at.begin = instances.causes[id] == no_instance ? 0 : instances.ends[instances.causes[id]];
    at.link_class = instances.slowest[id];
    explain(at, step, network, processor);
    path.push_back(at);
  }
  std::reverse(path.begin(), path.end());
  return path;
}

StepTimes times_of(const Schedules& schedules, const Instances& instances) {
  StepTimes times(schedules.problem().nranks);
  const std::vector<uint64_t> bases = bases_of(schedules);
  const uint64_t last_slice = schedules.slices() - 1;
  for (size_t lane = 0; lane < schedules.lanes().size(); ++lane) {
    const LaneOfRank& of = schedules.lanes()[lane];
    auto& steps = times[of.rank].emplace_back(of.length);
    for (uint32_t i = 0; i < of.length; ++i) {
      const uint64_t id = bases[lane] + last_slice * of.length + i;
      const uint32_t partner = instances.partners[id];
      steps[i].end = instances.ends[id];
      if (partner == no_instance) continue;
      const auto other = size_t(std::upper_bound(bases.begin(), bases.end(), uint64_t{partner}) - bases.begin() - 1);
      steps[i].partner_step = uint32_t((partner - bases[other]) % schedules.lanes()[other].length);
    }
  }
  return times;
}

}  // namespace tutti::simulation
