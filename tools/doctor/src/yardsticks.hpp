// SPDX-License-Identifier: Apache-2.0
//
// The machine without Tutti: memory, cores, processes and loopback, each measured many times for a while.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace doctor {

struct Figure {
  std::string name, unit, meaning;  // units: GB/s, us, ns
  std::vector<double> samples;      // none: `problem` says why
  std::string problem;

  bool more_is_better() const { return unit == "GB/s"; }
  double best() const;
  double median() const;
};

// All of them, each for so many seconds, on the cores in `cpus`. Forks; to be called before threads are made.
std::vector<Figure> measure(const std::vector<uint32_t>& cpus, double seconds);

}  // namespace doctor
