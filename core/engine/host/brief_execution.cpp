// SPDX-License-Identifier: Apache-2.0
//
// How the host executor carries out a plan in its brief form (engine/plan/brief_plan.hpp). The steps of a lane are
// carried out in order. Behind one that waits, every step that needs none of those before it may overtake: a rank that
// gives its core to another one has sent all that it can.
#include <tutti/tutti.h>

#include <cstring>

#include "engine/host/executor.hpp"
#include "registry/host.hpp"

namespace tutti::core {

void Execution::launch_brief(const Plan& plan, uint32_t mark, const void* in, void* out) {
  brief_ = plan.brief.get();
  plan_ = &plan;
  mark_ = mark;
  lanes_ = 0;
  if (plan.scratch.bytes > scratch_capacity_) take_scratch(plan.scratch.bytes);
  buffers_[TUTTI_BUFFER_IN].base = static_cast<std::byte*>(const_cast<void*>(in));
  buffers_[TUTTI_BUFFER_OUT].base = static_cast<std::byte*>(out);
  buffers_[TUTTI_BUFFER_SCRATCH].base = scratch_;
  uint32_t begin = 0;
  for (size_t lane = 0; lane < brief_->ends.size(); ++lane) {
    brief_lanes_[lane] = {begin, begin, 0};
    begin = brief_->ends[lane];
  }
  if (sources_.size() < plan.most_sources) sources_.resize(plan.most_sources);
}

bool Execution::advance_brief() {
  bool all = true;
  const BriefStep* const steps = brief_->steps.data();
  const auto lanes = static_cast<uint32_t>(brief_->ends.size());
  for (uint32_t lane = 0; lane < lanes; ++lane) {
    BriefLane& run = brief_lanes_[lane];
    const uint32_t end = brief_->ends[lane];
    while (run.at != end && (run.has_done(run.at - run.begin + 1) || carry_out(steps[run.at], lane))) {
      run.done |= 1u << (run.at++ - run.begin);
      note_progress();
    }
    if (run.at == end) continue;
    all = false;
    overtake(run, lane);
  }
  return all;
}

void Execution::overtake(BriefLane& run, uint32_t lane) {
  for (uint32_t next = run.at + 1; next < brief_->ends[lane]; ++next) {
    const BriefStep& step = brief_->steps[next];
    const uint32_t number = next - run.begin + 1;
    if (run.has_done(number) || step.behind > run.at - run.begin || !run.has_done(step.behind_message)) continue;
    if (!carry_out(step, lane)) continue;
    run.done |= 1u << (number - 1);
    note_progress();
  }
}

// Has the step been carried out? False: it waits.
inline bool Execution::carry_out(const BriefStep& step, uint32_t lane) {
  if (!brief_lanes_[step.after_lane].has_done(step.after)) return false;
  switch (step.kind) {
    case BriefStep::send:
      return send_brief(step, lane);
    case BriefStep::receive:
    case BriefStep::receive_reduce:
      return receive_brief(step, lane);
    case BriefStep::reduce:
      reduce_brief(step);
      return true;
    case BriefStep::nothing:
      break;
  }
  return true;
}

bool Execution::send_brief(const BriefStep& step, uint32_t lane) {
  Link& link = *step.link;
  const tutti_view* const view = link.view;
  const uint32_t transport_lane = first_lane_ + lane;
  void* const slot = view->try_reserve(link.handle, transport_lane, step.bytes);
  if (!slot) return false;
  if (step.bytes) std::memcpy(slot, at(step.src), step.bytes);
  if (link.port->marks) view->set_mark(link.handle, transport_lane, mark_);
  view->commit(link.handle, transport_lane, step.bytes);
  link.sent += step.bytes;
  return true;
}

bool Execution::receive_brief(const BriefStep& step, uint32_t lane) {
  Link& link = *step.link;
  const tutti_view* const view = link.view;
  const uint32_t transport_lane = first_lane_ + lane;
  uint64_t bytes = step.bytes;
  const void* const message = view->try_receive(link.handle, transport_lane, &bytes);
  if (!message) return false;
  const bool foreign = link.port->marks && view->get_mark(link.handle, transport_lane) != mark_;
  if (foreign || bytes != step.bytes) fail(*step.bound, link, TUTTI_MISMATCH, true, foreign);
  if (step.kind == BriefStep::receive_reduce) {
    const void* sources[2] = {at(step.src), message};
    if (step.incoming_left) std::swap(sources[0], sources[1]);
    plan_->reduce({{at(step.dst), nullptr}, 1, sources, 2, step.elements, step.divisor, {false, false}, plan_->user,
                   plan_->shape.dtype});
  } else if (bytes) {
    std::memcpy(at(step.dst), message, bytes);
  }
  view->release(link.handle, transport_lane);
  link.received += bytes;
  return true;
}

void Execution::reduce_brief(const BriefStep& step) {
  const BriefPlace* const from = brief_->sources.data() + step.first_source;
  if (step.sources == 1 && step.divisor == 0) {
    if (at(step.dst) != at(from[0])) std::memcpy(at(step.dst), at(from[0]), step.bytes);
    return;
  }
  for (uint32_t i = 0; i < step.sources; ++i) sources_[i] = at(from[i]);
  plan_->reduce({{at(step.dst), nullptr}, 1, sources_.data(), step.sources, step.elements, step.divisor,
                 {false, false}, plan_->user, plan_->shape.dtype});
}

// The step that the launch waits for, and its lane; nullptr: it is complete.
const BriefStep* Execution::waiting_brief(size_t& lane) const {
  for (lane = 0; lane < brief_->ends.size(); ++lane)
    if (brief_lanes_[lane].at != brief_->ends[lane]) return &brief_->steps[brief_lanes_[lane].at];
  return nullptr;
}

}  // namespace tutti::core
