// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/brief_plan.hpp"

#include <algorithm>

#include "engine/plan/plan.hpp"

namespace tutti::core {
namespace {

BriefPlace place_of(const Plan& plan, const Operand& operand) {
  return {operand.buffer, operand.buffer ? operand.first * plan.element_bytes : 0};
}

bool is_worth_it(const Plan& plan) {
  const Shape& shape = plan.shape;
  if (plan.native || plan.slices != 1 || plan.call_bytes > BriefPlan::most_bytes) return false;
  if (has_unequal_blocks(shape.collective) || shape.wire || shape.op == op_premul_sum) return false;
  if (plan.lanes.size() > BriefPlan::most_lanes || plan.most_parts) return false;
  size_t steps = 0;
  for (const auto& lane : plan.lanes) steps += lane.size();
  return steps <= BriefPlan::most_steps &&
         std::ranges::all_of(plan.links, [](const Link* link) { return link->handle && link->view; });
}

// The steps of its lane that the step must not overtake. A forwarded message follows its receive, the step before.
void order(BriefStep& step, const BoundStep& bound, size_t position) {
  const auto at = static_cast<uint32_t>(position);
  const auto number_back = [at](uint32_t distance) { return distance && distance <= at ? at - distance + 1 : 0; };
  step.behind = bound.forwarded ? at : number_back(bound.after_conflict);
  step.behind_message = number_back(bound.out ? bound.after_out : bound.after_in);
}

// The step without its place in the lane. Where a step moves nothing it is dropped alike at both ends.
BriefStep brief_step(const Plan& plan, const BoundStep& bound, std::vector<BriefPlace>& sources) {
  BriefStep step;
  const Operand& any = bound.dst.buffer ? bound.dst : bound.src;
  step.elements = any.buffer ? any.length : 0;
  step.bytes = step.elements * plan.element_bytes;
  step.bound = &bound;
  step.link = bound.out ? bound.out : bound.in;
  step.divisor = bound.divisor;
  step.incoming_left = bound.incoming_left;
  step.dst = place_of(plan, bound.dst);
  step.src = place_of(plan, bound.src);
  if (bound.kind == TUTTI_STEP_NOP || (bound.kind != TUTTI_STEP_SIGNAL && step.bytes == 0)) return step;
  step.kind = bound.out                             ? BriefStep::send
              : bound.kind == TUTTI_STEP_RECV_REDUCE ? BriefStep::receive_reduce
              : bound.in                            ? BriefStep::receive
                                                    : BriefStep::reduce;
  if (step.kind != BriefStep::reduce) return step;
  step.first_source = static_cast<uint32_t>(sources.size());
  step.sources = bound.kind == TUTTI_STEP_COPY ? 1 : bound.sources;
  for (uint32_t i = 0; i < step.sources; ++i)
    sources.push_back(
        place_of(plan, bound.kind == TUTTI_STEP_COPY ? bound.src : plan.sources[bound.first_source + i]));
  return step;
}

}  // namespace

std::shared_ptr<const BriefPlan> make_brief(const Plan& plan) {
  if (!is_worth_it(plan)) return nullptr;
  auto brief = std::make_shared<BriefPlan>();
  for (const auto& lane : plan.lanes) {
    for (size_t i = 0; i < lane.size(); ++i) {
      BriefStep step = brief_step(plan, lane[i], brief->sources);
      if (step.link && step.bytes > step.link->fragment) return nullptr;
      order(step, lane[i], i);
      if (lane[i].dependency_lane != TUTTI_NO_DEPENDENCY) {
        step.after_lane = lane[i].dependency_lane;
        step.after = lane[i].dependency_step + 1;
      }
      brief->steps.push_back(step);
    }
    brief->ends.push_back(static_cast<uint32_t>(brief->steps.size()));
  }
  return brief;
}

}  // namespace tutti::core
