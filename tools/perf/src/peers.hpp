// SPDX-License-Identifier: Apache-2.0
//
// Measurements of other libraries, or of other runs, to be drawn beside this one.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace perf {

struct PeerPoint {
  std::string collective;  // "": of whichever is measured
  uint64_t bytes = 0;
  double time_us = 0;
};

struct Peer {
  std::string name;
  std::vector<PeerPoint> points;
};

// "NAME=FILE": JSON that tutti-perf -J has written, or CSV whose first line names the columns size (bytes) and time_us,
// and perhaps collective. Throws std::runtime_error that names the file and the line.
Peer read_peer(const std::string& text);

}  // namespace perf
