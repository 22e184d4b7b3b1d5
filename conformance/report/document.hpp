// SPDX-License-Identifier: Apache-2.0
//
// A run as one JSON document, described by schema/report-1.schema.json, and back.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "result.hpp"

namespace tutti::conformance {

constexpr const char* report_schema = "tutti.conformance-report/1";

// Everything that the run knows; verdict, reasons and counts are derived from it, as of the day of the run.
nlohmann::ordered_json to_document(const Run& run);

// The run of a document. Throws std::runtime_error that names the place in it ("results[12].verdict") and what was
// expected there: another schema, a missing or mistyped value, counts that are not those of the results.
Run from_document(const nlohmann::ordered_json& document);

// Indented, one result a line. Text that is not UTF-8 is replaced.
std::string document_text(const nlohmann::ordered_json& document);

}  // namespace tutti::conformance
