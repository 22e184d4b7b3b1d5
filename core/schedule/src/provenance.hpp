// SPDX-License-Identifier: Apache-2.0
//
// The final contents of every output chunk: each step runs on expressions instead of data.
#pragma once

#include "step_graph.hpp"

namespace tutti {

// Facts about the reduction trees of a set of schedules with right results.
struct Trees {
  bool same = true;
  bool rank_order = true;
  bool canonical = true;  // Proof::canonical
  bool flat = true;       // Proof::flat
};

// Requires a graph that ran, and that has no races, so that one order of execution stands for all. Finds
// Fault::wrong_result or Fault::scaling. One slice is enough: slices are equal, and races between them are excluded.
Finding check_provenance(const StepGraph& graph, Trees* trees);

// Every rank's end comes after every rank's start.
Finding check_barrier(const StepGraph& graph);

}  // namespace tutti
