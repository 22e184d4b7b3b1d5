// SPDX-License-Identifier: Apache-2.0
//
// The simulated device's counters of this process.
#pragma once

#include <atomic>
#include <cstdint>

#include "simulated_plugin.hpp"

namespace tutti::test {

struct SimulatedCounters {
  std::atomic<uint64_t> launches;      // pieces of work that its devices were given
  std::atomic<uint64_t> queries;       // calls of classify
  std::atomic<uint64_t> synchronised;  // calls that may wait for a whole device, made while one was not done
};

inline const SimulatedCounters& counters() {
  static const auto* found = static_cast<const SimulatedCounters*>(simulated_interface("tutti.simulated_launches/1"));
  return *found;
}

}  // namespace tutti::test
