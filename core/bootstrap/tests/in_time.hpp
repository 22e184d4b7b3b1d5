// SPDX-License-Identifier: Apache-2.0
//
// An upper bound for tests of deadlines. Other ranks' calls have a minute, and end a test in which nobody keeps the
// deadline: it takes longer and is as green.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <source_location>
#include <tutti/sdk/time_scale.hpp>

namespace tutti::test {

// Lives while something waits that a deadline of some seconds at most has to end. Fails the test, naming the line that
// made it, when it lived for longer than limit().
class InTime {
 public:
  // On any machine longer than those deadlines and shorter than the minute.
  static std::chrono::duration<double> limit() {
    return std::min<std::chrono::duration<double>>(tutti_test::scaled(std::chrono::seconds(20)),
                                                   std::chrono::seconds(50));
  }

  explicit InTime(std::source_location where = std::source_location::current()) : where_(where) {}
  InTime(const InTime&) = delete;
  InTime& operator=(const InTime&) = delete;
  ~InTime() {
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin_;
    if (took > limit())
      ADD_FAILURE_AT(where_.file_name(), static_cast<int>(where_.line()))
          << "the deadline was not kept: " << took.count() << " s, at most " << limit().count() << " s";
  }

 private:
  const std::source_location where_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

}  // namespace tutti::test
