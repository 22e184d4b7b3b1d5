// SPDX-License-Identifier: Apache-2.0
//
// Does a quantity grow without end? Samples at even intervals; the first third is warm-up.
#pragma once

#include <string>
#include <vector>

namespace tutti::conformance {

class Trend {
 public:
  // `allowance` and `share` of the early level are what the late level may be above it: what noise and caches do.
  Trend(std::string name, std::string unit, double allowance, double share)
      : name_(std::move(name)), unit_(std::move(unit)), allowance_(allowance), share_(share) {}

  void add(double value) { values_.push_back(value); }
  // "" while all is well (or nothing can be said yet: fewer than 9 samples); else what grew, from where to where. The
  // least of the second and of the last third are compared: what comes and goes in between is no growth.
  std::string growth() const;
  bool known() const { return values_.size() >= fewest; }
  double last() const { return values_.empty() ? 0 : values_.back(); }

 private:
  static constexpr size_t fewest = 9;
  double least(size_t begin, size_t end) const;

  std::string name_, unit_;
  double allowance_, share_;
  std::vector<double> values_;
};

// The quantities that a soak observes, over all ranks, and the growth of each that is noise: of a busy machine, of
// caches that fill.
struct Watched {
  Trend resident{"resident bytes", "MiB", 8, 0.1};
  Trend allocated{"allocated bytes", "MiB", 0.25, 0.05};
  Trend descriptors{"open descriptors", "", 3, 0.01};
  Trend latency{"times of a small all_reduce", "us", 1000, 0.5};

  // The quantities that grew, one sentence each.
  std::vector<std::string> growth() const {
    std::vector<std::string> all;
    for (const Trend* trend : {&resident, &allocated, &descriptors, &latency})
      if (std::string one = trend->growth(); !one.empty()) all.push_back(std::move(one));
    return all;
  }
};

}  // namespace tutti::conformance
