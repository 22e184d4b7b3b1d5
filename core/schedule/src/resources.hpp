// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "step_graph.hpp"

namespace tutti {

// Fills in the counts of a proof: steps, messages, rounds, lanes, scratch, messages in flight, bytes. Requires a graph
// that ran.
void count_resources(const StepGraph& graph, const std::vector<Schedule>& schedules, Proof* proof);

// The least that the busiest rank must send, in blocks, whatever the algorithm.
double least_bytes_sent(uint32_t collective, uint32_t nranks);

}  // namespace tutti
