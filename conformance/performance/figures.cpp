// SPDX-License-Identifier: Apache-2.0
#include "performance/figures.hpp"

#include <fmt/format.h>

#include <algorithm>

namespace tutti::conformance {
namespace {

// In the middle of its rounds the yardstick may be so many times slower than in its best: more is no noise of a quiet
// machine.
constexpr double steady = 2;

double least(const std::vector<double>& values) { return *std::min_element(values.begin(), values.end()); }

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string amount(const Figures& f, double seconds) {
  return f.bytes > 0 ? fmt::format("{:.3g} GB/s", f.bytes / seconds * 1e-9) : fmt::format("{:.3g} us", seconds * 1e6);
}

// How many times slower than alone on the machine the yardstick seems to have been; 1 where nothing speaks for it.
double slowed_down(const Figures& f) {
  const double alone = f.idle > 0 ? std::min(least(f.limit), f.idle) : least(f.limit);
  const double times = median(f.limit) / alone;
  return times > steady ? times : 1;
}

std::string slower_than(const Figures& f, double far) {
  const double own = least(f.own), limit = median(f.limit);
  if (own > far * limit)
    return fmt::format("{}: {} at best, while {} gives {} here: {:.0f} times slower, and {:.3g} times is the limit",
                       f.what, amount(f, own), f.yardstick, amount(f, limit), own / limit, far);
  if (f.claim > 0 && own > far * f.claim && limit <= f.far * f.claim)
    return fmt::format(
        "{}: {} at best, while its own capabilities claim {}: {:.0f} times slower, and {:.3g} times is the limit",
        f.what, amount(f, own), amount(f, f.claim), own / f.claim, far);
  return {};
}

}  // namespace

std::string far_below(const Figures& f) { return slower_than(f, f.far * slowed_down(f)); }

std::string not_judged(const Figures& f) {
  if (slower_than(f, f.far).empty() || !far_below(f).empty()) return {};
  return fmt::format("not judged: the machine was busy ({} gave {} at best and {} in the middle of {} rounds{})",
                     f.yardstick, amount(f, least(f.limit)), amount(f, median(f.limit)), f.limit.size(),
                     f.idle > 0 ? "; alone it takes at most " + amount(f, f.idle) : "");
}

std::string in_words(const Figures& f) {
  return fmt::format("{}: {} at best, {} in the middle; {}: {}{}", f.what, amount(f, least(f.own)),
                     amount(f, median(f.own)), f.yardstick, amount(f, median(f.limit)),
                     f.claim > 0 ? "; claimed: " + amount(f, f.claim) : "");
}

}  // namespace tutti::conformance
