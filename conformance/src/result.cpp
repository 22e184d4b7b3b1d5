// SPDX-License-Identifier: Apache-2.0
#include "result.hpp"

#include "selection.hpp"

namespace tutti::conformance {

std::string axis_of(const Result& result, std::string_view name) {
  for (const auto& [key, value] : result.axes)
    if (key == name) return value;
  return {};
}

const char* level_name(Level level) {
  constexpr const char* names[] = {"smoke", "quick", "standard", "full"};
  return names[static_cast<size_t>(level)];
}

Counts Run::counts() const {
  Counts c;
  for (const Result& r : results) {
    switch (r.outcome.verdict) {
      case Verdict::pass:
        ++c.passed;
        break;
      case Verdict::warning:
        ++c.warnings;
        break;
      case Verdict::not_supported:
        ++c.not_supported;
        break;
      case Verdict::not_run:
        ++c.not_run;
        break;
      case Verdict::fail:
        ++c.failed;
        break;
      case Verdict::crash:
        ++c.crashed;
        break;
      case Verdict::timeout:
        ++c.timed_out;
        break;
    }
    const bool answered = r.outcome.verdict == Verdict::pass || r.outcome.verdict == Verdict::warning;
    if (r.must_pass && !answered && !is_bad(r.outcome.verdict)) ++c.must_pass_missing;
  }
  return c;
}

}  // namespace tutti::conformance
