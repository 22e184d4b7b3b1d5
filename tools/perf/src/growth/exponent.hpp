// SPDX-License-Identifier: Apache-2.0
//
// How a cost grows: y = c * n^exponent, from measured points.
#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace perf {

struct GrowthPoint {
  uint32_t nranks = 0;
  double value = 0;
};

// The slope by least squares in log-log space over the upper half of the points, rounded up, so that what a small job
// costs anyway does not count. `points` ascend by nranks. Values of 0 or less, and not-a-numbers, have no logarithm and
// are left out. Nothing: fewer than two points of the upper half are left.
std::optional<double> growth_exponent(std::span<const GrowthPoint> points);

// The value that the last two points, continued as a power, give for `nranks`; of one point, in proportion to the
// ranks. Nothing: no point.
std::optional<double> expected_value(std::span<const GrowthPoint> points, uint32_t nranks);

}  // namespace perf
