// SPDX-License-Identifier: Apache-2.0
//
// Is the algorithm that a communicator chooses the right one? Its time at each size against the fastest forced one.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>

#include "collectives.hpp"

namespace perf {

// The result for one size of one collective, equal on all ranks.
struct Point {
  const Collective* collective = nullptr;
  uint64_t bytes = 0, block_bytes = 0;
  std::map<std::string, double> us;  // by algorithm, each forced
  std::string chosen;                // by the communicator itself
  double chosen_us = 0;
  std::string rival;  // the fastest of the algorithms that were not chosen; "": there is no other
  double rival_us = 0;
  bool repeated = false;  // chosen_us and rival_us are those of duels
  // The choice's time divided by that of the fastest algorithm, at least 1.
  double ratio() const { return rival.empty() || rival_us >= chosen_us ? 1 : chosen_us / rival_us; }
  const std::string& winner() const { return ratio() > 1 ? rival : chosen; }
  double winner_us() const { return ratio() > 1 ? rival_us : chosen_us; }
};

// Up to this ratio two times count as alike, and a choice as right.
constexpr double alike = 1.1;
// A choice beyond it is named.
constexpr double far_off = 1.3;

// The shares of points within these ratios, and the worst points by name: lines that begin with "# ".
std::string judgement_text(std::span<const Point> points);
nlohmann::ordered_json judgement_json(std::span<const Point> points);

}  // namespace perf
