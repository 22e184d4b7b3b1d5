// SPDX-License-Identifier: Apache-2.0
//
// The services that plugins are given (tutti_host), and logging. TUTTI_LOG=error|warn|info|debug|trace, default warn.
#pragma once

#include <tutti/plugin/entry.h>

#include <string>
#include <vector>

namespace tutti::core {

const tutti_host* host_table();
// A setting's value or nullptr. Read from the environment once per name, so that the string lives for good.
const char* host_config(const char* key);
// The number of the kind of memory of the device that is called `name` (tutti_host.memory_kind). Throws Failure.
uint32_t memory_kind(const std::string& name);
// The text that take_plugin_error() takes on this thread; NULL: none.
void leave_plugin_error(const char* text) noexcept;
// The names that host_config was asked for.
std::vector<std::string> asked_settings();
void log(uint32_t level, const std::string& source, const std::string& text);
bool log_enabled(uint32_t level);
// A host's identity for reach: TUTTI_HOST_ID, else boot id + network namespace.
std::string host_key();

}  // namespace tutti::core
