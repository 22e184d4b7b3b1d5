// SPDX-License-Identifier: Apache-2.0
//
// The rules of a legal program. Tutti must carry out a legal program: any failure of one is a finding.
#pragma once

#include <string>

#include "fuzz/program.hpp"

namespace tutti::conformance::fuzz {

constexpr uint32_t most_ranks = 16;
constexpr uint32_t most_strands = 16;
// A receiver keeps 64 sends of a peer that it has not received yet; no program relies on the last of them.
constexpr uint32_t most_sends_ahead = 60;
constexpr uint32_t most_times = 1000;
// Ranks wait for each other up to the connect timeout (30 s): sleeps must not come near it.
constexpr uint64_t most_sleep_ms = 20'000;

// "" when the program is legal; otherwise the first rule that it breaks, with the event.
std::string illegal(const Program& program);

// Removes what has no effect any more: references to events that are gone, empty waits, unused strands and processes,
// messages that have lost a half, and all use of communicators that are not made.
void tidy(Program& program);

}  // namespace tutti::conformance::fuzz
