// SPDX-License-Identifier: Apache-2.0
#include "growth/exponent.hpp"

#include <cmath>
#include <vector>

namespace perf {
namespace {

struct Logarithms {
  double x = 0, y = 0;
};

// The slope of the line of least squares. Nothing: there is no one line.
std::optional<double> slope(std::span<const Logarithms> points) {
  if (points.size() < 2) return std::nullopt;
  Logarithms mean;
  for (const Logarithms& point : points) {
    mean.x += point.x / static_cast<double>(points.size());
    mean.y += point.y / static_cast<double>(points.size());
  }
  double products = 0, squares = 0;
  for (const Logarithms& point : points) {
    products += (point.x - mean.x) * (point.y - mean.y);
    squares += (point.x - mean.x) * (point.x - mean.x);
  }
  if (squares == 0) return std::nullopt;
  return products / squares;
}

std::vector<Logarithms> logarithms(std::span<const GrowthPoint> points) {
  std::vector<Logarithms> made;
  for (const GrowthPoint& point : points)
    if (point.nranks > 0 && point.value > 0 && std::isfinite(point.value))
      made.push_back({std::log(static_cast<double>(point.nranks)), std::log(point.value)});
  return made;
}

}  // namespace

std::optional<double> growth_exponent(std::span<const GrowthPoint> points) {
  return slope(logarithms(points.subspan(points.size() / 2)));
}

std::optional<double> expected_value(std::span<const GrowthPoint> points, uint32_t nranks) {
  if (points.empty()) return std::nullopt;
  const GrowthPoint& last = points.back();
  const std::span<const GrowthPoint> last_two = points.subspan(points.size() > 1 ? points.size() - 2 : 0);
  return last.value * std::pow(static_cast<double>(nranks) / last.nranks, slope(logarithms(last_two)).value_or(1));
}

}  // namespace perf
