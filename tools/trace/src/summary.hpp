// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "findings.hpp"
#include "timeline.hpp"

namespace trace {

// What a person wants to know first: how exact the times are, the straggler, the slowest link, each rank's waiting, and
// the calls that take the time.
std::string summary(const Timeline& timeline);

}  // namespace trace
