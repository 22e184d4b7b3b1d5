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
  // The plan of a shape, made if need be, and bound to the blocks where they are unequal: launches under way with other
  // blocks have plans of their own. Throws Failure.
  Plan& find(const Shape& shape, const BlockTable* blocks);
  // Removes the plans that reduce by an operator of the application. False: one is being carried out, and all stay.
  bool drop(uint32_t op);

 private:
  Plan& make(const Shape& shape);
  Plan& touch(Plan& plan);
  void make_room();

  Planner& planner_;
  Reports& reports_;
  std::unordered_multimap<Shape, std::unique_ptr<Plan>, ShapeHash> plans_;  // several where blocks are unequal
  std::array<Plan*, last_collective + 1> last_{};
  uint64_t clock_ = 0;
};

}  // namespace tutti::core
