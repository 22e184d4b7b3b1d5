// SPDX-License-Identifier: Apache-2.0
//
// Levels: what tutti/plugin/algorithm.h demands of them, proved; and levels for schedules that have none.
#pragma once

#include "step_graph.hpp"

namespace tutti {

// How many slices show all that slices do to each other: they meet in scratch only, so enough to see each copy come
// round again, or one where none does.
uint32_t slices_to_unroll(const std::vector<Schedule>& schedules);

// Fault::levels where given levels break a rule; none where there are none. The graph is of slices_to_unroll().
Finding check_levels(const StepGraph& graph, const std::vector<Schedule>& schedules);

}  // namespace tutti
