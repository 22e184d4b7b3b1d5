// SPDX-License-Identifier: Apache-2.0
//
// A job of ranks on this host, in a process of its own: it begins afresh, its failure ends nothing else, and it can be
// stopped.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "growth/cost.hpp"

namespace perf {

struct GrowthJob {
  bool threads = false;  // the ranks are threads of one process, else processes
  uint32_t nranks = 2, splits = 2;
};

struct GrowthResult {
  std::optional<GrowthCost> cost;
  std::string error;  // why there is no cost
};

// Starts the job and waits for its end. After `limit` it is killed. The calling process must not have made a
// communicator, and has one thread.
GrowthResult run_job(const GrowthJob& job, std::chrono::duration<double> limit);

}  // namespace perf
