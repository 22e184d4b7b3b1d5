// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan_cache.hpp"

#include <algorithm>
#include <utility>

#include "engine/plan/planner.hpp"
#include "record/reports.hpp"

namespace tutti::core {

Plan& PlanCache::touch(Plan& plan) {
  plan.last_used = ++clock_;
  last_[plan.shape.collective] = &plan;
  return plan;
}

Plan& PlanCache::find(const Shape& shape, const BlockTable* blocks) {
  const auto [begin, end] = plans_.equal_range(shape);
  if (!blocks) return touch(begin != end ? *begin->second : make(shape));
  auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second->unequal.table == *blocks; });
  if (found != end) return touch(*found->second);
  found = std::find_if(begin, end, [](const auto& entry) { return !entry.second->pins; });
  Plan& plan = found != end ? *found->second : make(shape);
  bind_blocks(plan, *blocks, planner_.nranks, planner_.rank);
  return touch(plan);
}

Plan& PlanCache::make(const Shape& shape) {
  make_room();
  Schedule schedule;
  auto plan = std::make_unique<Plan>(planner_.plan(shape, false, 0, schedule));
  plan->service = reports_.row(collective_name(shape.collective), plan->algorithm, plan->transports);
  return *plans_.emplace(shape, std::move(plan))->second;
}

bool PlanCache::drop(uint32_t op) {
  const auto reduces_by_it = [op](const auto& entry) { return entry.first.op == op; };
  if (std::ranges::any_of(plans_, [&](const auto& entry) { return reduces_by_it(entry) && entry.second->pins; }))
    return false;
  for (const auto& [shape, plan] : plans_)
    if (shape.op == op) forget(*plan);
  std::erase_if(plans_, reduces_by_it);
  return true;
}

void PlanCache::remember(Plan& plan, const void* in, const void* out) {
  const uint32_t which = plan.shape.collective;
  if (repeated_[which].plan == &plan) return;
  const uint32_t alignment = is_reducing(which) ? dtype_alignment(plan.shape.dtype) : 1;
  repeated_[which] = {&plan, alignment - 1, reinterpret_cast<uintptr_t>(out) - reinterpret_cast<uintptr_t>(in)};
}

void PlanCache::forget(const Plan& plan) {
  const uint32_t which = plan.shape.collective;
  if (last_[which] == &plan) last_[which] = nullptr;
  if (repeated_[which].plan == &plan) repeated_[which] = {};
}

void PlanCache::make_room() {
  if (plans_.size() < most_plans) return;
  const auto oldest = std::ranges::min_element(
      plans_, {}, [](const auto& entry) { return std::pair(entry.second->pins != 0, entry.second->last_used); });
  if (oldest->second->pins) return;
  forget(*oldest->second);
  plans_.erase(oldest);
}

}  // namespace tutti::core
