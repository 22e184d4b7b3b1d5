// SPDX-License-Identifier: Apache-2.0
#include "judgement.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

namespace perf {
namespace {

// Percent of the points whose ratio is at most `most`.
double percent_within(double most, std::span<const Point> points) {
  const auto near = std::ranges::count_if(points, [=](const Point& point) { return point.ratio() <= most; });
  return points.empty() ? 100 : 100.0 * static_cast<double>(near) / static_cast<double>(points.size());
}

std::vector<const Point*> wrong_points(std::span<const Point> points) {
  std::vector<const Point*> wrong;
  for (const Point& point : points)
    if (point.ratio() > alike) wrong.push_back(&point);
  std::ranges::stable_sort(wrong, std::ranges::greater(), [](const Point* point) { return point->ratio(); });
  return wrong;
}

}  // namespace

std::string judgement_text(std::span<const Point> points) {
  constexpr size_t most_named = 10;
  const std::vector<const Point*> wrong = wrong_points(points);
  std::string text = fmt::format(
      "# The choice is within 10 % of the fastest algorithm at {:.0f} % of {} points, within 30 % at {:.0f} %\n",
      percent_within(alike, points), points.size(), percent_within(far_off, points));
  for (const Point* point : std::span(wrong).first(std::min(wrong.size(), most_named)))
    text += fmt::format("# {:.2f}: {} of {} bytes by {} takes {:.2f} us, by {} {:.2f} us\n", point->ratio(),
                        point->collective->name, point->bytes, point->chosen, point->chosen_us, point->rival,
                        point->rival_us);
  if (wrong.size() > most_named) text += fmt::format("# and {} more beyond 10 %\n", wrong.size() - most_named);
  return text;
}

nlohmann::ordered_json judgement_json(std::span<const Point> points) {
  using Json = nlohmann::ordered_json;
  Json rows = Json::array();
  for (const Point& point : points)
    rows.push_back({{"collective", point.collective->name},
                    {"size", point.bytes},
                    {"block_bytes", point.block_bytes},
                    {"chosen", point.chosen},
                    {"chosen_us", point.chosen_us},
                    {"rival", point.rival},
                    {"rival_us", point.rival_us},
                    {"ratio", point.ratio()},
                    {"repeated", point.repeated},
                    {"us", point.us}});
  return {{"points", points.size()},
          {"percent_within_1.1", percent_within(alike, points)},
          {"percent_within_1.3", percent_within(far_off, points)},
          {"rows", std::move(rows)}};
}

}  // namespace perf
