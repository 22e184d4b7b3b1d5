// SPDX-License-Identifier: Apache-2.0
//
// The core's own settings from the environment. Unset is not the same as empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tutti::core {

std::optional<std::string> setting(const char* name);
// 1 or on: true; 0 or off: false. Throws Failure for anything else.
bool flag_setting(const char* name, bool fallback = false);
// A whole number up to `most`. Throws Failure for anything else.
uint64_t number_setting(const char* name, uint64_t fallback, uint64_t most);
// A positive number of seconds (a fraction is allowed) as nanoseconds. Throws Failure for anything else.
uint64_t seconds_setting(const char* name, uint64_t fallback_seconds);

}  // namespace tutti::core
