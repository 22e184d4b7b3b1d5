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

  // The plan of a call, and its schedule, whose steps have levels where it goes into a stream (`on_device`). Chunks of
  // at most `uncut` bytes run in one slice. Where blocks are unequal bind_blocks() is next. Throws Failure.
  Plan plan(const Shape& shape, bool on_device, uint64_t uncut, Schedule& schedule);

  // The proofs made so far: the algorithm, and all that a problem depends on besides the communicator.
  std::set<std::tuple<const tutti_algorithm*, uint32_t, uint32_t, uint64_t, uint64_t>> proved = {};
};

}  // namespace tutti::core
