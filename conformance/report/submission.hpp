// SPDX-License-Identifier: Apache-2.0
//
// A submission: a folder with report.json, report.xml (JUnit), report.html and SHA256SUMS, which `sha256sum -c` reads.
// The digests show that a file was altered by accident or without care, not who wrote it: a run can be repeated from
// its manifest and seed.
#pragma once

#include <string>

#include "result.hpp"

namespace tutti::conformance {

// Makes the folder, empty of an earlier submission's files. Throws std::invalid_argument when it cannot be written.
void begin_submission(const std::string& folder);
// Throws std::runtime_error that names the file and says why it could not be written.
void write_submission(const Run& run, const std::string& folder);

// The run of a submission whose files are whole: all there, with the digests that SHA256SUMS has, and, when this very
// version of the suite wrote them, the page and the JUnit file those of the JSON. Throws std::runtime_error that names
// the file and says what is wrong with it.
Run read_submission(const std::string& folder);

}  // namespace tutti::conformance
