// SPDX-License-Identifier: Apache-2.0
//
// How the ranks of a communicator meet: what its configuration says, handed to the bootstrap library.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "bootstrap/bootstrap.hpp"
#include "comm/configuration.hpp"
#include "observe/flight_recorder.hpp"

namespace tutti::core {

// Advance knowledge of a communicator that follows another one (shrink, grow).
struct Succession {
  uint32_t newcomers = 0;                           // of the ranks, those that come with TUTTI_COMM_JOIN
  std::function<std::string()> hopeless = nullptr;  // why not all can come, or ""
};

// The expected meeting, for the flight recorder, before the ranks have met. Errors are left to meet().
FlightRecorder::Meeting expected_meeting(const Configuration& configuration);

// Returns when all ranks have met. Throws Failure.
std::unique_ptr<Bootstrap> meet(const Configuration& configuration, const Succession& succession);

}  // namespace tutti::core
