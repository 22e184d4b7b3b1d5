// SPDX-License-Identifier: Apache-2.0
//
// The test of the tests: every mutant must be killed, every clause must have a mutant that is killed by it.
//
// A mutant is run like a vendor's plugin: the contract cases of its subject, cheapest first, until one fails. It is
// killed when that case names the broken clause, the fault was reached, and the unbroken original passes the same case
// in the same run. Anything else is a survivor, a crash on load included.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "case.hpp"
#include "faults.hpp"

namespace tutti::conformance {

struct MutantResult {
  const Fault* fault = nullptr;
  bool killed = false;
  bool not_run = false;  // the machine lacks what the case needs that would find it
  std::string by;        // the case that failed first
  Outcome outcome;       // its outcome
  std::string why;       // why it survived or was not run
  double seconds = 0;
};

struct MutantOptions {
  std::vector<std::string> names;  // empty: all
  uint64_t seed = 1;
  double patience = 1;  // of a case, in seconds
  uint32_t workers = 2;
  std::function<void(const MutantResult&)> on_result;  // one at a time
};

// In the order of the tables. Throws std::runtime_error when the mutants' plugin or an original is not there, or a name
// is unknown.
std::vector<MutantResult> run_mutants(const MutantOptions& options);

// Clauses that no killed mutant breaks (of all clauses).
std::vector<std::string> uncovered_clauses(const std::vector<MutantResult>& results);

}  // namespace tutti::conformance
