// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "step_graph.hpp"

namespace tutti {

// Conflicting accesses of one rank that happens-before leaves unordered: Fault::race, or Fault::slice_reuse where they
// are in different slices. Requires a graph that ran.
Finding check_races(const StepGraph& graph);

}  // namespace tutti
