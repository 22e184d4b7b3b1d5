// SPDX-License-Identifier: Apache-2.0
//
// Times for tests in which work of the application may take longer than a deadline.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <tutti/sdk/time_scale.hpp>

namespace tutti::test {

// A deadline, and a longer time for which the application holds up a stream, on any machine shorter than the minute that
// other ranks' calls have.
struct Patience {
  std::chrono::duration<double> held_up =
      std::min<std::chrono::duration<double>>(tutti_test::scaled(std::chrono::milliseconds(4500)),
                                              std::chrono::seconds(30));
  uint64_t deadline_ns = static_cast<uint64_t>(held_up.count() * 2e9 / 3);
};

}  // namespace tutti::test
