// SPDX-License-Identifier: Apache-2.0
//
// The record of a run, and what can be read from it: the critical path, the times of steps.
#pragma once

#include "simulation/simulation.hpp"

namespace tutti::simulation {

constexpr uint32_t no_instance = UINT32_MAX;

// By instance: a step of one slice. Lanes follow each other; within one, slices do.
struct Instances {
  std::vector<double> ends;
  // The instance by whose end it could begin: for a receive the send, which then has that of the later end.
  std::vector<uint32_t> causes;
  std::vector<uint8_t> slowest;    // of a SEND: the class of the link that was done with it last
  std::vector<uint32_t> partners;  // if kept: the other end of a message
};

// Seconds of a COPY or REDUCE of so many bytes.
inline double work_of(const Processor& processor, const CompactStep& step, uint64_t bytes) {
  const double per_byte =
      step.kind == TUTTI_STEP_REDUCE ? processor.reduce_per_byte * step.peer : processor.copy_per_byte;
  return double(bytes) * per_byte;
}

// From the first step to `last`.
std::vector<PathStep> critical_path(const Schedules& schedules, const Network& network, const Processor& processor,
                                    const Instances& instances, uint32_t last);

// Those of the last slice.
StepTimes times_of(const Schedules& schedules, const Instances& instances);

}  // namespace tutti::simulation
