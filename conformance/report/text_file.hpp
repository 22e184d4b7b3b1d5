// SPDX-License-Identifier: Apache-2.0
//
// Whole files of text, read and written or refused with the reason.
#pragma once

#include <string>

namespace tutti::conformance {

// Throws std::runtime_error that names the file and says why.
std::string read_text_file(const std::string& path);
// Replaces the file; it is complete when this returns. Throws std::runtime_error that names the file and says why.
void write_text_file(const std::string& path, const std::string& text);
// To be asked before a long run rather than found out after it: creates the file when it is not there. Throws
// std::invalid_argument that begins with `option`.
void require_writable(const std::string& option, const std::string& path);

}  // namespace tutti::conformance
