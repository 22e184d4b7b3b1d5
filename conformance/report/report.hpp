// SPDX-License-Identifier: Apache-2.0
//
// A run as files. Each is a function of the run alone: the same run gives the same bytes.
#pragma once

#include <string>

#include "result.hpp"

namespace tutti::conformance {

// JSON by schema/report-1.schema.json; JUnit XML; one page that needs nothing beside it.
std::string json_text(const Run& run);
std::string junit_text(const Run& run);
std::string html_text(const Run& run);

// Each writes a file, or throws std::runtime_error that names it and says why it could not.
void write_json(const Run& run, const std::string& path);
void write_junit(const Run& run, const std::string& path);
void write_html(const Run& run, const std::string& path);

}  // namespace tutti::conformance
