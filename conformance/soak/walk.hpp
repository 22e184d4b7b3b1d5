// SPDX-License-Identifier: Apache-2.0
//
// The soak's walk: what each of its ranks does until the time is up. Two threads, each with communicators of its own,
// go from epoch to epoch: a communicator is made over a transport drawn by lot (chaos with faults that the contract
// allows among them), cells of the matrix are drawn and judged by the oracle, messages are sent around the ring, a
// burst of asynchronous operations is waited for in another order, and the communicator is destroyed.
//
// All ranks draw alike, by the seed; rank 0's clock ends the walk.
#pragma once

#include "suites.hpp"

namespace tutti::conformance {

// The parameters of a walk, from its case's id: soak/SECONDS/INTERVAL_MS/TRANSPORTS/PLANT.
struct WalkOrder {
  double seconds = 0;
  uint32_t interval_ms = 1000;
  std::vector<std::string> transports;  // "+"-separated in the id
  std::string plant = "none";           // what is leaked on purpose: none, memory, descriptor, latency
};
std::string walk_id(const WalkOrder& order);

// A sample: a rank writes one line per interval into "samples-RANK" of its folder.
struct WalkSample {
  uint64_t epochs = 0, operations = 0;
  double resident = 0;     // MiB
  double allocated = 0;    // MiB: what was allocated and not freed
  double descriptors = 0;  // open ones
  double latency = 0;      // us: least of an 8 B all_reduce over the first transport
};
std::string to_line(const WalkSample& sample);
// False when the line is none.
bool from_line(const std::string& line, WalkSample* sample);

// A suite without cases to list: by it the workers find the walk.
Suite soak_suite();

}  // namespace tutti::conformance
