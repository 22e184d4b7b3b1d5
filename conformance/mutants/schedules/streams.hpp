// SPDX-License-Identifier: Apache-2.0
//
// Does a set of schedules come to its end, in the right order, when all ranks' steps go into one queue by their levels?
// That is the hardest case of device streams: several may share a hardware queue, in which a step that waits holds up
// everything behind it. It shares nothing with the verifier or with the library's own order.
#pragma once

#include <cstdint>
#include <string>

#include "mutants/schedules/mutation.hpp"

namespace tutti::conformance {

// One slice and three; messages of one fragment and of several, through one slot and through two. Returns what goes
// wrong, or "". Nothing goes wrong in schedules without levels.
std::string search_streams(const ScheduleSet& set);

}  // namespace tutti::conformance
