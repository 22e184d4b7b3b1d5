// SPDX-License-Identifier: Apache-2.0
#include "engine/plan/plan_cache.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>

#include "base/failure.hpp"
#include "base/hash.hpp"
#include "engine/choose/selector.hpp"
#include "record/reports.hpp"

namespace tutti::core {

Plan& PlanCache::serve(Plan& plan) {
  plan.last_used = ++clock_;
  last_[plan.shape.collective] = &plan;
  inputs_.reports->serve(plan.shape.collective, plan.service, plan.slices, plan.schedule_hash);
  return plan;
}

Plan& PlanCache::find(const Shape& shape) {
  const auto found = plans_.find(shape);
  return serve(found != plans_.end() ? *found->second : make(shape));
}

Plan* PlanCache::recall(const Shape& shape, const BlockTable& table) const {
  Plan* const last = recall(shape);
  if (!last || last->unequal.table == table) return last;
  if (last->pins) return nullptr;
  bind_blocks(*last, table, inputs_.nranks, inputs_.rank);
  return last;
}

Plan& PlanCache::find(const Shape& shape, const BlockTable& table) {
  const auto [begin, end] = plans_.equal_range(shape);
  auto found = std::find_if(begin, end, [&](const auto& entry) { return entry.second->unequal.table == table; });
  if (found != end) return serve(*found->second);
  found = std::find_if(begin, end, [](const auto& entry) { return !entry.second->pins; });
  Plan& plan = found != end ? *found->second : make(shape);
  bind_blocks(plan, table, inputs_.nranks, inputs_.rank);
  return serve(plan);
}

Plan& PlanCache::make(const Shape& shape) {
  make_room();
  std::unique_ptr<Plan> plan = bind(shape);
  plan->service = inputs_.reports->row(collective_name(shape.collective), plan->algorithm, plan->transports);
  return *plans_.emplace(shape, std::move(plan))->second;
}

std::unique_ptr<Plan> PlanCache::bind(const Shape& shape) const {
  const uint32_t element_bytes = shape.dtype ? dtype_bytes(shape.dtype) : 1;
  const auto& [rank, nranks, verifies, selector, links, reports, operators] = inputs_;
  const UserOperator* user = operators->find(shape.op);
  const Candidate choice = selector->choose(shape, false, user && !user->commutative);
  if (choice.native) {
    auto plan = std::make_unique<Plan>(native_plan(*choice.native, shape, nranks, rank));
    plan->common_hash = hash_text(fmt::format("collective {}", plan->algorithm));
    return plan;
  }
  Problem problem = selector->problem(*choice.algorithm, shape.collective, shape.root, shape.count * element_bytes);
  if (verifies) {
    const Proof proof = verify_algorithm(*choice.algorithm, problem);
    if (!proof.ok())
      throw Failure(TUTTI_INTERNAL,
                    fmt::format("TUTTI_VERIFY: algorithm {} is wrong: {}", choice.algorithm->name, proof.error));
  }
  problem.in_place.assign(nranks, false);
  problem.in_place[rank] = shape.in_place != 0;
  Schedule schedule;
  std::string error;
  const tutti_status status = build_schedule(*choice.algorithm, make_query(problem, rank), &schedule, &error);
  if (status < 0)
    throw Failure(status, fmt::format("algorithm {}: {}: {}", choice.algorithm->name, error, take_plugin_error()));
  const bool unequal = has_unequal_blocks(shape.collective);
  const uint64_t slices = choice.cut && !unequal ? selector->slices_of(schedule, shape.count, element_bytes) : 1;
  auto plan = std::make_unique<Plan>(bind_plan(schedule, shape, slices, nranks, rank, *links, user));
  plan->algorithm = choice.algorithm->name;
  plan->schedule_hash = schedule_hash(schedule);
  plan->common_hash = hash_text(fmt::format("{} in {} slices", choice.algorithm->name, slices));
  plan->unequal.way_hash = plan->common_hash;
  return plan;
}

bool PlanCache::drop(uint32_t op) {
  const auto reduces_by_it = [op](const auto& entry) { return entry.first.op == op; };
  if (std::ranges::any_of(plans_, [&](const auto& entry) { return reduces_by_it(entry) && entry.second->pins; }))
    return false;
  for (Plan*& last : last_)
    if (last && last->shape.op == op) last = nullptr;
  std::erase_if(plans_, reduces_by_it);
  return true;
}

void PlanCache::make_room() {
  if (plans_.size() < most_plans) return;
  auto oldest = plans_.end();
  for (auto p = plans_.begin(); p != plans_.end(); ++p)
    if (!p->second->pins && (oldest == plans_.end() || p->second->last_used < oldest->second->last_used)) oldest = p;
  if (oldest == plans_.end()) return;
  Plan*& last = last_[oldest->first.collective];
  if (last == oldest->second.get()) last = nullptr;
  plans_.erase(oldest);
}

}  // namespace tutti::core
