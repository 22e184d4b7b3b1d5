// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <map>

#include "plots/panel.hpp"

namespace perf {
namespace {

using plots::Line;
using plots::panel_height;
using plots::panel_width;

constexpr double gap = 90, left = 76, top = 110, row_height = panel_height + 110;

struct Series {
  std::string name;
  Line time, bandwidth;  // us, GB/s
};

// One side of the rows that have it: out of place, else in place.
const Side* side_of(const Row& row) {
  return row.out_of_place.measured ? &row.out_of_place : row.in_place.measured ? &row.in_place : nullptr;
}

// Tutti's lines, one for each type, operator and root, and the peers'.
std::vector<Series> series_of(const std::string& collective, const std::vector<Row>& rows,
                              const std::vector<Peer>& peers) {
  std::vector<Series> all;
  std::map<std::string, size_t> places;
  double factor = 0;  // bus bandwidth by algorithm bandwidth
  for (const Row& row : rows) {
    const Side* side = side_of(row);
    if (row.collective->name != collective || !side || !row.bytes || side->time_us <= 0) continue;
    const std::string key =
        row.dtype + (row.op == "none" ? "" : " " + row.op) + (row.root < 0 ? "" : " root " + std::to_string(row.root));
    if (places.emplace(key, all.size()).second) all.push_back({"Tutti, " + key, {}, {}});
    Series& series = all[places[key]];
    series.time.push_back({double(row.bytes), side->time_us});
    if (side->bus_bandwidth > 0) series.bandwidth.push_back({double(row.bytes), side->bus_bandwidth});
    if (side->algorithm_bandwidth > 0) factor = side->bus_bandwidth / side->algorithm_bandwidth;
  }
  if (all.empty()) return all;
  if (all.size() == 1) all.front().name = "Tutti";
  for (const Peer& peer : peers) {
    Series series{peer.name, {}, {}};
    for (const PeerPoint& point : peer.points) {
      if (!point.collective.empty() && point.collective != collective) continue;
      series.time.push_back({double(point.bytes), point.time_us});
      if (factor > 0)
        series.bandwidth.push_back({double(point.bytes), factor * double(point.bytes) / point.time_us / 1e3});
    }
    if (!series.time.empty()) all.push_back(std::move(series));
  }
  return all;
}

}  // namespace

std::string plot(const Options& options, const Setting& setting, const std::vector<Row>& rows,
                 const std::vector<Peer>& peers) {
  std::string body;
  double y = top;
  for (const Collective* collective : options.collectives) {
    const std::vector<Series> all = series_of(collective->name, rows, peers);
    if (all.empty()) continue;
    std::vector<std::string> names;
    std::vector<Line> times, bandwidths;
    for (const Series& series : all) {
      names.push_back(series.name);
      times.push_back(series.time);
      bandwidths.push_back(series.bandwidth);
    }
    plots::draw_legend(names, left, y - 32, &body);
    plots::Panel(left, y, &body).draw(std::string(collective->name) + ": time", times, "us");
    plots::Panel(left + panel_width + gap, y, &body)
        .draw(std::string(collective->name) + ": bus bandwidth", bandwidths, "GB/s");
    y += row_height;
  }
  std::string title = std::to_string(setting.nranks) + " ranks";
  if (!setting.transports.empty()) title += " over " + setting.transports;
  return plots::picture(title, left + 2 * panel_width + gap + 24, y - 50, body);
}

}  // namespace perf
