// SPDX-License-Identifier: Apache-2.0
//
// Runs cases in worker processes, which are this program started again. A case that crashes, hangs or leaves processes
// behind harms nothing but its own verdict.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "result.hpp"
#include "selection.hpp"

namespace tutti::conformance {

struct RunnerOptions {
  uint64_t seed = 1;                     // of the run; each case's seed derives from it
  std::vector<std::string> plugins;      // files that every worker loads
  std::vector<std::string> environment;  // "NAME=VALUE" for every worker, before a case's own; "NAME" removes it
  std::string nccl_net, netns;           // as in Selection
  double patience = 1;                   // likewise
  bool stop_at_first_bad = false;
  std::string program;  // the executable that workers run; empty: this one
  // Called in the calling process after each case, in order of completion.
  std::function<void(const Result&)> on_result;
};

// A result for each case, in the order of `cases`; cases that were not reached are NotRun. Cases of one job are run
// together, where the first of them stands. Blocks; call from the main thread of a process that reaps no children
// itself. Throws std::runtime_error when workers cannot be started at all.
std::vector<Result> run_cases(const std::vector<Case>& cases, const RunnerOptions& options);

// The caller's environment without what would change what is tested, and with "NAME=VALUE" or, removed, "NAME".
std::vector<std::string> worker_environment(const std::vector<std::string>& changes);

// The seed of one case.
uint64_t case_seed(uint64_t run_seed, const std::string& id);

}  // namespace tutti::conformance
