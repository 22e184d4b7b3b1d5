// SPDX-License-Identifier: Apache-2.0
//
// The plans that a communicator has made for calls on host memory, by shape. At most `most_plans` are kept; the one
// used longest ago gives way, unless it is being carried out.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "engine/plan/plan.hpp"

namespace tutti::core {

struct Planner;
class Reports;

// A blocking call on host memory with equal blocks and no options, before its arguments are checked.
struct PlainCall {
  uint32_t collective = 0, dtype = 0, op = 0, root = 0;
  uint64_t count = 0;
  const void* in = nullptr;
  void* out = nullptr;
};

class PlanCache {
 public:
  static constexpr size_t most_plans = 1024;

  // Both outlive the cache.
  PlanCache(Planner& planner, Reports& reports) : planner_(planner), reports_(reports) {}

  // The plan of the last call of the shape's collective when it had this shape and, where blocks are unequal, these
  // blocks; else nullptr. Costs a few loads.
  Plan* recall(const Shape& shape, const BlockTable* blocks) const {
    Plan* const last = last_[shape.collective];
    return last && last->shape == shape && (!blocks || last->unequal.table == *blocks) ? last : nullptr;
  }
  // The plan of the last such call of the collective, where this one has the same arguments and buffers that pass the
  // same checks; else nullptr.
  Plan* recall(const PlainCall& call) const {
    const Repeated& last = repeated_[call.collective];
    if (!last.plan) return nullptr;
    const Plan& plan = *last.plan;
    const Shape& shape = plan.shape;
    if (shape.count != call.count || shape.dtype != call.dtype || shape.op != call.op || shape.root != call.root)
      return nullptr;
    const auto in = reinterpret_cast<uintptr_t>(call.in), out = reinterpret_cast<uintptr_t>(call.out);
    if ((plan.in_bytes && (!in || in & last.misaligned)) || (plan.out_bytes && (!out || out & last.misaligned)))
      return nullptr;
    if (shape.in_place) return out - in == last.distance ? last.plan : nullptr;
    const bool apart = !plan.in_bytes || !plan.out_bytes || in + plan.in_bytes <= out || out + plan.out_bytes <= in;
    return apart ? last.plan : nullptr;
  }
  // Such a call of the plan, whose arguments were checked, is made.
  void remember(Plan& plan, const void* in, const void* out);
  // The plan of a shape, made if need be, and bound to the blocks where they are unequal: launches under way with other
  // blocks have plans of their own. Throws Failure.
  Plan& find(const Shape& shape, const BlockTable* blocks);
  // Removes the plans that reduce by an operator of the application. False: one is being carried out, and all stay.
  bool drop(uint32_t op);

 private:
  struct Repeated {
    Plan* plan = nullptr;
    uintptr_t misaligned = 0;  // the bits that addresses do not have
    uintptr_t distance = 0;    // in place: from `in` to `out`
  };
  Plan& make(const Shape& shape);
  void forget(const Plan& plan);
  Plan& touch(Plan& plan);
  void make_room();

  Planner& planner_;
  Reports& reports_;
  std::unordered_multimap<Shape, std::unique_ptr<Plan>, ShapeHash> plans_;  // several where blocks are unequal
  std::array<Plan*, last_collective + 1> last_{};
  std::array<Repeated, last_collective + 1> repeated_{};
  uint64_t clock_ = 0;
};

}  // namespace tutti::core
