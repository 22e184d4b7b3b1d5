// SPDX-License-Identifier: Apache-2.0
//
// The smallest cell of the matrix that still fails.
#pragma once

#include <optional>

#include "runner.hpp"

namespace tutti::conformance {

// Runs cells that are smaller than the one that `bad` is the result of: fewer ranks and elements, the plainest place,
// memory, alignment and way of calling. Returns the result of the smallest that fails with the same verdict and clause;
// nothing if there is none, or if `bad` is of another suite. Ends after about `seconds`.
std::optional<Result> smallest_failure(const Result& bad, const RunnerOptions& options, double seconds);

}  // namespace tutti::conformance
