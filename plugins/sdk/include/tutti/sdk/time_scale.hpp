// SPDX-License-Identifier: Apache-2.0
//
// For tests that judge by real time: TUTTI_TEST_TIME_SCALE=3 makes their limits three times as long, on a loaded
// machine or under a sanitizer.
#pragma once

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace tutti_test {

// At least 1. A text that is no number counts as 1.
inline double time_scale() {
  const char* text = std::getenv("TUTTI_TEST_TIME_SCALE");
  double scale = 1;
  if (text) std::from_chars(text, text + std::strlen(text), scale);
  return std::clamp(scale, 1.0, 100.0);
}

// A limit that a broken product exceeds by far, so that it may be stretched.
template <typename Rep, typename Period>
std::chrono::duration<double> scaled(std::chrono::duration<Rep, Period> limit) {
  return std::chrono::duration<double>(limit) * time_scale();
}

}  // namespace tutti_test
