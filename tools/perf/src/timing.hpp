// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace perf {

using Clock = std::chrono::steady_clock;

inline double microseconds(Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); }

// The upper of the two middle ones where the number of values is even.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

}  // namespace perf
