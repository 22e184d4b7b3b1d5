// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/schedule.h>

#include <string>

namespace tutti::plan {

// An SVG of a schedule set, which must have been verified: a band for each rank, its lanes as rows, time from left to
// right.
std::string draw(const Problem& problem, const std::vector<Schedule>& schedules, const std::string& title);

}  // namespace tutti::plan
