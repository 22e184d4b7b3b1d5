// SPDX-License-Identifier: Apache-2.0
//
// One rank's trace file, read and checked. Times are still in ticks of that rank's processor.
#pragma once

#include <tutti/trace.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trace {

struct Service {
  std::string algorithm, transports;
};

struct TraceFile {
  std::string path;
  tutti_trace_header header{};
  std::string name, host, program;
  std::map<uint32_t, Service> services;
  std::vector<tutti_trace_call> calls;
  std::map<uint64_t, uint64_t> tags;  // of calls that have one, by sequence
  std::vector<tutti_trace_step> steps, waits;
  std::vector<tutti_trace_transfer> transfers;
  std::vector<tutti_trace_clock> clocks;
  std::vector<tutti_trace_peer_clock> peer_clocks;
  std::vector<tutti_trace_link> links;
  uint64_t lost = 0;                  // records that found no room
  bool ended = false;                 // the communicator was destroyed
  std::vector<std::string> problems;  // that leave the rest usable
};

// Throws std::runtime_error that says what is wrong with a file of which nothing can be used.
TraceFile read_trace(const std::string& path);

}  // namespace trace
