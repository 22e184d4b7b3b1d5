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
#include <vector>

#include "engine/plan/plan.hpp"

namespace tutti::core {

class Reports;
class Selector;

class PlanCache {
 public:
  static constexpr size_t most_plans = 1024;

  // The inputs of every plan. They outlive the cache. `verifies`: every algorithm is proved before its first use.
  struct Inputs {
    uint32_t rank = 0, nranks = 1;
    bool verifies = false;
    Selector* selector = nullptr;
    std::vector<Link>* links = nullptr;
    Reports* reports = nullptr;
    const UserOperators* operators = nullptr;
  };
  void use(const Inputs& inputs) { inputs_ = inputs; }

  // The plan of the last call of the shape's collective when it had this shape; else nullptr. Costs a few loads.
  Plan* recall(const Shape& shape) const {
    Plan* const last = last_[shape.collective];
    return last && last->shape == shape ? last : nullptr;
  }
  // The same with unequal blocks: the last plan is bound to the table if it is not and no launch of it is under way.
  Plan* recall(const Shape& shape, const BlockTable& table) const;
  // The plan of a shape, made if need be. Throws Failure.
  Plan& find(const Shape& shape);
  // The same with unequal blocks, bound to the table. Launches with other tables have plans of their own.
  Plan& find(const Shape& shape, const BlockTable& table);
  // A plan that was found before is used again.
  void use_again(Plan& plan) {
    if (last_[plan.shape.collective] != &plan) serve(plan);
  }
  // Removes the plans that reduce by an operator of the application. False: one is being carried out, and all stay.
  bool drop(uint32_t op);
  // Another mechanism serves the collective now: the next call of it on host memory is looked up again.
  void forget_last(uint32_t collective) { last_[collective] = nullptr; }

 private:
  Plan& make(const Shape& shape);
  Plan& serve(Plan& plan);
  std::unique_ptr<Plan> bind(const Shape& shape) const;
  void make_room();

  Inputs inputs_;
  std::unordered_multimap<Shape, std::unique_ptr<Plan>, ShapeHash> plans_;  // several where blocks are unequal
  std::array<Plan*, last_collective + 1> last_{};
  uint64_t clock_ = 0;
};

}  // namespace tutti::core
