// SPDX-License-Identifier: Apache-2.0
//
// The compact form of a step, which compiling writes and running reads.
#pragma once

#include <cstdint>

namespace tutti::simulation {

// As many consecutive steps of a lane are in flight as in the host executor (core/engine/host/executor.hpp).
constexpr uint32_t lookahead = 16;

// CompactStep::flags
enum : uint8_t {
  does_send = 1,
  does_receive = 2,
  does_forward = 4,  // the next step sends what this one receives, as it comes
  is_forwarded = 8,
  is_empty = 16  // nothing to do
};

// CompactStep::dependency
constexpr uint32_t dependency_step_bits = 21;

constexpr uint64_t bytes_of_a_lane = 64;  // while it runs

}  // namespace tutti::simulation
