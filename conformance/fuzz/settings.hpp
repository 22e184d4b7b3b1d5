// SPDX-License-Identifier: Apache-2.0
//
// Settings of Tutti and its transports by lot.
#pragma once

#include <string>
#include <vector>

#include "fuzz/lot.hpp"
#include "fuzz/program.hpp"

namespace tutti::conformance::fuzz {

// "NAME=VALUE" each; `chaos`: faults that the contract allows are put over a transport.
std::vector<std::string> draw_settings(Lot& lot, const Program& program, bool chaos);

// Adds a setting, in the place of another value of the same name.
void set(std::vector<std::string>& settings, const std::string& setting);
// True if a name has a value among the settings.
bool is_set(const std::vector<std::string>& settings, const std::string& name);

}  // namespace tutti::conformance::fuzz
