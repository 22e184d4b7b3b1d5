// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/schedule.h>

#include <string>

namespace tutti::plan {

// The statements of a successful proof, one sentence per line.
std::string findings(const Problem& problem, const std::vector<Schedule>& schedules, const Proof& proof);

// "ring all_reduce on 4 ranks", with root and in-place where they matter.
std::string title(const Problem& problem, const std::string& algorithm);

}  // namespace tutti::plan
