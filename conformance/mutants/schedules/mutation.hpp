// SPDX-License-Identifier: Apache-2.0
//
// Automatic mutation of schedules: a correct set of schedules, changed in one place in every way of a table: steps are
// dropped, doubled, swapped, rewired.
#pragma once

#include <tutti/schedule.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace tutti::conformance {

// All ranks' schedules of one operation.
struct ScheduleSet {
  Problem problem;
  std::vector<Schedule> schedules;
};

// One place of a schedule.
struct StepPlace {
  uint32_t rank = 0, lane = 0;
  size_t step = 0;
};

struct Mutation {
  const char* name;
  const char* what;  // for readers: "the step is left out"
  // Changes the step there; false where it has nothing to change.
  bool (*apply)(ScheduleSet& set, const StepPlace& place);
  bool only_levels = false;  // what the steps do, and what orders them on the host, stays
};

std::span<const Mutation> mutations();

}  // namespace tutti::conformance
