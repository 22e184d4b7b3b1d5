// SPDX-License-Identifier: Apache-2.0
//
// The report for people and for programs.
#pragma once

#include <string>

#include "judge.hpp"

namespace doctor {

std::string report_text(const Job& job, const Findings& findings);
std::string report_json(const Job& job, const Findings& findings);
bool has_errors(const Findings& findings);

}  // namespace doctor
