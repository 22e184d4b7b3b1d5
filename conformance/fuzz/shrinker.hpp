// SPDX-License-Identifier: Apache-2.0
//
// Makes a failing program small: parts of it are left out as long as it fails in the same way.
#pragma once

#include <functional>
#include <vector>

#include "fuzz/program.hpp"

namespace tutti::conformance::fuzz {

// Tries candidates, all at once if it likes: the index of one that fails as the original did, or -1.
using Examine = std::function<int(const std::vector<Program>& candidates)>;

// A program that fails and from which nothing more can be left out. Ends early when `more` says no.
Program shrink(Program failing, const Examine& examine, const std::function<bool()>& more);

}  // namespace tutti::conformance::fuzz
