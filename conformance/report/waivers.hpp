// SPDX-License-Identifier: Apache-2.0
//
// Waivers: failures that are known and accepted until a day. They are in the report for everybody to see.
//
//   {"schema": "tutti.conformance-waivers/1",
//    "waivers": [{"cases": "matrix/*/courier/*", "reason": "...", "link": "https://...", "expires": "2027-03-31"}]}
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "result.hpp"

namespace tutti::conformance {

constexpr const char* waivers_schema = "tutti.conformance-waivers/1";

// From a file of the form above, or from the list in a report. Throws std::runtime_error that names the waiver and what
// it lacks: each has a pattern of cases, a reason, a link and a day.
std::vector<Waiver> read_waivers(const std::string& path);
std::vector<Waiver> waivers_from(const nlohmann::ordered_json& list);

// Is `text` a day of the calendar, YYYY-MM-DD?
bool is_day(const std::string& text);
// Today, UTC.
std::string today();
// A waiver holds through the day on which it expires.
bool in_force(const Waiver& waiver, const std::string& day);
// The waiver in force for a result, or nullptr.
const Waiver* waiver_of(const std::vector<Waiver>& waivers, const Result& result, const std::string& day);

}  // namespace tutti::conformance
