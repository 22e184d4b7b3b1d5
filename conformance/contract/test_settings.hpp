// SPDX-License-Identifier: Apache-2.0
//
// The settings that a plugin lets the suite change (tutti/plugin/test_settings.h).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport_api.hpp"

namespace tutti::conformance::contract {

struct TestSetting {
  std::string name;
  uint64_t least = 0, most = 0, step = 1;
};

// Those that the plugin declares. Throws Broken (E-11) when the list cannot be read, NotOffered when there is none.
std::vector<TestSetting> test_settings(Bench& bench);

// A value that the setting allows: often the least or the most or one next to them, else of any magnitude.
uint64_t draw_value(const TestSetting& setting, uint64_t dice);

// Draws values for some of the settings and sets them in this process's environment, from which the suite's host table
// answers. "TUTTI_MINE_SLOTS=1 TUTTI_MINE_RING=4096".
std::string draw_settings(Bench& bench, uint64_t seed);

}  // namespace tutti::conformance::contract
