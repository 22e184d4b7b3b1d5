// SPDX-License-Identifier: Apache-2.0
//
// The way from a call's shape to this rank's plan, on host memory and in streams: the choice of an algorithm, its proof
// (TUTTI_VERIFY), its schedule, the number of slices, and the binding to links.
#pragma once

#include <cstdint>
#include <set>
#include <tuple>
#include <vector>

#include "engine/choose/selector.hpp"
#include "engine/plan/plan.hpp"

namespace tutti::core {

struct Planner {
  // The inputs of every plan. They outlive the planner.
  uint32_t rank = 0, nranks = 1;
  bool verifies = false;  // every algorithm is proved before its first use
  Selector* selector = nullptr;
  std::vector<Link>* links = nullptr;
  const UserOperators* operators = nullptr;

  // Where blocks are unequal bind_blocks() is next. Throws Failure.
  Plan host_plan(const Shape& shape) {
    Schedule schedule;
    return plan(shape, false, 0, schedule);
  }
  // The same, and the schedule, whose steps have levels. A chunk of at most `uncut` bytes runs in one slice.
  Plan stream_plan(const Shape& shape, uint64_t uncut, Schedule& schedule) {
    return plan(shape, true, uncut, schedule);
  }
  Plan plan(const Shape& shape, bool on_device, uint64_t uncut, Schedule& schedule);
  void prove(const tutti_algorithm& algorithm, const Problem& problem);

  // What has been proved, by what a problem depends on besides the communicator: collective, root, size class.
  std::set<std::tuple<const tutti_algorithm*, uint32_t, uint32_t, uint64_t>> proved = {};
};

}  // namespace tutti::core
