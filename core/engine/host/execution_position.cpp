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
  for (size_t lane = 0; lane < lanes_; ++lane) {
    const LaneRun& run = *runs_[lane];
    if (run.head == run.end) continue;
    if (run.head == run.tail) return fmt::format("step 0 of lane {}, not started", lane);
    const Active& active = run.active[run.head & (lookahead - 1)];
    const BoundStep& step = *active.step;
    const Link* link = step.out ? step.out : step.in;
    return fmt::format(
        "step {} of lane {}, slice {} of {}: {}{}", active.step - plan_->lanes[lane].data(), lane, active.slice + 1,
        plan_->slices, step_name(step.kind),
        link ? fmt::format(" {} rank {} over {}", step.out ? "to" : "from", link->peer, link->port->api->name)
             : std::string());
  }
  return "its end";
}

size_t Execution::waits(uint64_t sequence, std::span<tutti_flight_wait> to) const {
  size_t n = 0;
  for (size_t lane = 0; lane < lanes_ && n < to.size(); ++lane) {
    const LaneRun& run = *runs_[lane];
    if (run.head == run.end || run.head == run.tail) continue;
    const Active& active = run.active[run.head & (lookahead - 1)];
    const BoundStep& step = *active.step;
    const Link* link = step.out ? step.out : step.in;
    const Flow& flow = step.out ? static_cast<const Flow&>(active.out) : active.in;
    tutti_flight_wait& wait = to[n++];
    wait = {};
    wait.operation = sequence + 1;
    wait.lane = static_cast<uint32_t>(lane);
    wait.step = static_cast<uint32_t>(active.step - plan_->lanes[lane].data());
    wait.slice = active.slice;
    wait.slices = plan_->slices;
    wait.kind = step.kind;
    wait.peer = link ? link->peer : UINT32_MAX;
    wait.bytes = active.started ? active.bytes : 0;
    wait.done = !active.started || !flow.link ? 0 : step.out ? flow.handed : flow.completed;
    if (link) std::strncpy(wait.transport, link->port->api->name, sizeof wait.transport - 1);
  }
  return n;
}

tutti_trace_step Execution::trace_step(const Active& active, size_t lane) const {
  const BoundStep& step = *active.step;
  const Link* link = step.out ? step.out : step.in;
  tutti_trace_step trace{};
  trace.peer = link ? link->peer : UINT32_MAX;
  trace.begin_ticks = active.begin_ticks;
  trace.bytes = active.started ? active.bytes : 0;
  trace.lane = static_cast<uint32_t>(lane);
  trace.step = static_cast<uint32_t>(active.step - plan_->lanes[lane].data());
  trace.slice = static_cast<uint32_t>(active.slice);
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
