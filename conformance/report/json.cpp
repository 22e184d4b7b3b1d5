// SPDX-License-Identifier: Apache-2.0
#include "report/document.hpp"
#include "report/report.hpp"
#include "report/text_file.hpp"

namespace tutti::conformance {

std::string json_text(const Run& run) { return document_text(to_document(run)); }

void write_json(const Run& run, const std::string& path) { write_text_file(path, json_text(run)); }

}  // namespace tutti::conformance
