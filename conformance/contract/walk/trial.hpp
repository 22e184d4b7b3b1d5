// SPDX-License-Identifier: Apache-2.0
//
// A walk in new processes, in which the plugin is loaded anew, and the smallest part of a walk that fails.
#pragma once

#include <string>

#include "walk.hpp"

namespace tutti::conformance::contract {

// The first thing that was wrong.
struct Finding {
  std::string verdict;  // "fail", "crash", "timeout" ...; empty: nothing
  std::string clause, text;
  bool is_bad() const { return verdict == "fail" || verdict == "crash" || verdict == "timeout"; }
};

// `bench` has not loaded the plugin yet. `patience`: seconds without news after which a walk stands still.
Finding try_walk(const Bench& bench, const Walk& walk, double patience);

// Leaves out steps as long as `finding` stays the same, for some seconds. `walk` becomes the smallest that was found.
void shrink_walk(const Bench& bench, Walk& walk, Finding& finding, double seconds);

// Throws what a finding says: Broken, NotOffered, CannotRun.
[[noreturn]] void throw_finding(const Finding& finding);

// All ranks of a walk in this thread. Throws Broken.
void walk_in_one_thread(Bench& bench, const Walk& walk);

}  // namespace tutti::conformance::contract
