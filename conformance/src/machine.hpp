// SPDX-License-Identifier: Apache-2.0
//
// The machine and the software on it, as far as a report or a case's needs ask.
#pragma once

#include <cstdint>
#include <string>

#include "result.hpp"
#include "selection.hpp"

namespace tutti::conformance {

// Bytes that this process and its children may still use: of the machine and of its control group.
uint64_t available_memory();
// SHA-256 of a file, hexadecimal; "" when it cannot be read.
std::string sha256_of_file(const std::string& path);
// This suite's version.
const char* suite_version();
// Every plugin that is found, with its digest.
std::vector<PluginFact> plugin_facts();
// All but what only the end of the run tells.
Manifest make_manifest(const Selection& selection, const std::string& command_line);

}  // namespace tutti::conformance
