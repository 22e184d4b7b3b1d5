// SPDX-License-Identifier: Apache-2.0
//
// An executor for tests that shares nothing with the verifier: it runs a schedule set on numbers, one random legal
// order of steps per seed, and says whether the results are right.
#pragma once

#include <string>

#include "schedule_builder.hpp"

namespace tutti::hand {

enum class Pace {
  free,   // any step whose lane conflicts and dependency allow it; messages are buffered
  strict  // in lane order, two in flight, no buffering
};

// Empty: the results are right. Else what is wrong.
std::string interpret(const Case& c, uint32_t slices, Pace pace, uint64_t seed);

}  // namespace tutti::hand
