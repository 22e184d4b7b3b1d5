// SPDX-License-Identifier: Apache-2.0
//
// Where an execution stands: in words, for the flight recorder and for a trace.
#include <fmt/format.h>
#include <tutti/schedule.h>

#include <cstring>

#include "base/clock.hpp"
#include "engine/host/executor.hpp"

namespace tutti::core {

std::string Execution::where() const {
  if (native_) return "where its plugin stands";
  if (brief_) {
    size_t lane = 0;
    const BriefStep* const waiting = waiting_brief(lane);
    return waiting ? step_text(*waiting->bound, lane, 0) : "its end";
  }
  for (size_t lane = 0; lane < lanes_; ++lane) {
    const LaneRun& run = *runs_[lane];
    if (run.head == run.end) continue;
    if (run.head == run.tail) return fmt::format("step 0 of lane {}, not started", lane);
    const Active& active = run.active[run.head & (lookahead - 1)];
    return step_text(*active.step, lane, active.slice);
  }
  return "its end";
}

bool Execution::waits_beyond() const {
  for (size_t lane = 0; brief_ && lane < brief_->ends.size(); ++lane) {
    const BriefLane& run = brief_lanes_[lane];
    for (uint32_t i = run.at; i != brief_->ends[lane]; ++i)
      if (const Link* link = brief_->steps[i].link; link && !link->is_beyond && !run.has_done(i - run.begin + 1))
        return false;
  }
  return brief_ != nullptr;
}

std::string Execution::step_text(const BoundStep& step, size_t lane, uint64_t slice) const {
  const Link* link = step.out ? step.out : step.in;
  return fmt::format(
      "step {} of lane {}, slice {} of {}: {}{}", &step - plan_->lanes[lane].data(), lane, slice + 1, plan_->slices,
      step_name(step.kind),
      link ? fmt::format(" {} rank {} over {}", step.out ? "to" : "from", link->peer, link->port->api->name)
           : std::string());
}

size_t Execution::waits(uint64_t sequence, std::span<tutti_flight_wait> to) const {
  size_t n = 0;
  for (size_t lane = 0; brief_ && lane < brief_->ends.size() && n < to.size(); ++lane)
    if (const uint32_t at = brief_lanes_[lane].at; at != brief_->ends[lane])
      to[n++] = wait_of(sequence, *brief_->steps[at].bound, lane, 0, brief_->steps[at].bytes, 0);
  for (size_t lane = 0; lane < lanes_ && n < to.size(); ++lane) {
    const LaneRun& run = *runs_[lane];
    if (run.head == run.end || run.head == run.tail) continue;
    const Active& active = run.active[run.head & (lookahead - 1)];
    const BoundStep& step = *active.step;
    const Flow& flow = step.out ? static_cast<const Flow&>(active.out) : active.in;
    const uint64_t done = !active.started || !flow.link ? 0 : step.out ? flow.handed : flow.completed;
    to[n++] = wait_of(sequence, step, lane, active.slice, active.started ? active.bytes : 0, done);
  }
  return n;
}

tutti_flight_wait Execution::wait_of(uint64_t sequence, const BoundStep& step, size_t lane, uint64_t slice,
                                     uint64_t bytes, uint64_t done) const {
  const Link* link = step.out ? step.out : step.in;
  tutti_flight_wait wait{};
  wait.operation = sequence + 1;
  wait.lane = static_cast<uint32_t>(lane);
  wait.step = static_cast<uint32_t>(&step - plan_->lanes[lane].data());
  wait.slice = slice;
  wait.slices = plan_->slices;
  wait.kind = step.kind;
  wait.peer = link ? link->peer : UINT32_MAX;
  wait.bytes = bytes;
  wait.done = done;
  if (link) std::strncpy(wait.transport, link->port->api->name, sizeof wait.transport - 1);
  return wait;
}

tutti_trace_step Execution::trace_step(const Active& active, size_t lane) const {
  tutti_trace_step trace = trace_step(*active.step, lane, active.slice, active.started ? active.bytes : 0);
  trace.begin_ticks = active.begin_ticks;
  return trace;
}

tutti_trace_step Execution::trace_step(const BoundStep& step, size_t lane, uint64_t slice, uint64_t bytes) const {
  const Link* link = step.out ? step.out : step.in;
  tutti_trace_step trace{};
  trace.peer = link ? link->peer : UINT32_MAX;
  trace.bytes = bytes;
  trace.lane = static_cast<uint32_t>(lane);
  trace.step = static_cast<uint32_t>(&step - plan_->lanes[lane].data());
  trace.slice = static_cast<uint32_t>(slice);
  trace.step_kind = static_cast<uint16_t>(step.kind);
  if (step.out) trace.flags = TUTTI_TRACE_SENDING;
  if (step.forwarded) trace.flags |= TUTTI_TRACE_FORWARDED;
  if (link) std::memcpy(trace.transport, link->port->api->name, strnlen(link->port->api->name, sizeof trace.transport));
  return trace;
}

void Execution::record(const Active& active, size_t lane) {
  tutti_trace_step step = trace_step(active, lane);
  step.kind = TUTTI_TRACE_STEP;
  step.sequence = sequence_;
  step.end_ticks = ticks();
  trace_->step(step);
}

tutti_trace_step Execution::waited_for(uint64_t sequence) const {
  tutti_trace_step wait{};
  wait.peer = UINT32_MAX;
  if (brief_) {
    size_t lane = 0;
    if (const BriefStep* waiting = waiting_brief(lane)) wait = trace_step(*waiting->bound, lane, 0, waiting->bytes);
  }
  for (size_t lane = 0; lane < lanes_; ++lane) {
    const LaneRun& run = *runs_[lane];
    if (run.head == run.end || run.head == run.tail) continue;
    wait = trace_step(run.active[run.head & (lookahead - 1)], lane);
    break;
  }
  wait.kind = TUTTI_TRACE_WAIT;
  wait.sequence = sequence;
  return wait;
}

}  // namespace tutti::core
