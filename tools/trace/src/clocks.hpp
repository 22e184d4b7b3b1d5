// SPDX-License-Identifier: Apache-2.0
//
// Clocks of trace files: ticks to CLOCK_MONOTONIC of the rank's host, and that to the one of the first host.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trace_file.hpp"

namespace trace {

// Ticks of one rank's processor as nanoseconds of its host.
class TickClock {
 public:
  // `rate`: nanoseconds of a tick as other files of the host have it, for a file with a single clock record; 0: none.
  TickClock(std::vector<tutti_trace_clock> clocks, double rate);
  bool known() const { return !points_.empty() && rate_ > 0; }
  int64_t ns(uint64_t ticks) const;
  // Nanoseconds of a tick; 0: not known.
  static double rate_of(const std::vector<tutti_trace_clock>& clocks);

 private:
  struct Point {
    double ticks, ns;
  };
  std::vector<Point> points_;
  double rate_ = 0;
};

// What is to be added to times of each clock (tutti_trace_header.clock) to have those of the first one.
struct Alignment {
  std::map<uint64_t, int64_t> shift;
  int64_t inexact_ns = 0;  // -1: some clock could only be placed by the hosts' date
  std::vector<std::string> problems;
};
Alignment align(const std::vector<TraceFile>& files);

}  // namespace trace
