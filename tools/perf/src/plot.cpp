// SPDX-License-Identifier: Apache-2.0
#include "plot.hpp"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <map>

#include "texts/texts.hpp"

namespace perf {
namespace {

constexpr double panel_width = 470, panel_height = 300, gap = 90, left = 76, top = 110, row_height = panel_height + 110;

constexpr const char* style = R"(<style>
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; font-size: 12px; }
  .title { font-size: 20px; font-weight: 600; } .head { font-size: 14px; font-weight: 600; } .note { fill: #6b7785; }
  .paper { fill: #ffffff; } .panel { fill: #f4f6f9; } .grid { stroke: #d9dfe7; }
  .line { fill: none; stroke-width: 2; }
  .s0 { stroke: #2f6fb5; fill: #2f6fb5; } .s1 { stroke: #b86a10; fill: #b86a10; } .s2 { stroke: #2c8453; fill: #2c8453; }
  .s3 { stroke: #7247ab; fill: #7247ab; } .s4 { stroke: #b33a55; fill: #b33a55; } .s5 { stroke: #5d6b79; fill: #5d6b79; }
  .line.s0, .line.s1, .line.s2, .line.s3, .line.s4, .line.s5 { fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaef; } .note { fill: #97a3b0; } .paper { fill: #14181d; } .panel { fill: #1c222a; }
    .grid { stroke: #303944; }
    .s0 { stroke: #78b0f0; fill: #78b0f0; } .s1 { stroke: #f0ae5c; fill: #f0ae5c; } .s2 { stroke: #74cf9c; fill: #74cf9c; }
    .s3 { stroke: #bb98ee; fill: #bb98ee; } .s4 { stroke: #ee8ba2; fill: #ee8ba2; } .s5 { stroke: #a8b4c0; fill: #a8b4c0; }
  }
</style>
)";
constexpr size_t colours = 6;

struct Series {
  std::string name;
  std::vector<std::pair<double, double>> time, bandwidth;  // by size in bytes: us, GB/s
};

std::string number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%.1f", value);
  return text;
}

std::string short_number(double value) {
  char text[40];
  std::snprintf(text, sizeof text, "%g", value);
  return text;
}

std::string size_text(double bytes) {
  const char* const units[] = {"", "K", "M", "G", "T"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return short_number(bytes) + units[unit];
}

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

struct Range {
  double least = std::numeric_limits<double>::max(), most = std::numeric_limits<double>::lowest();
  void take(double value) {
    least = std::min(least, value);
    most = std::max(most, value);
  }
};

// A panel with logarithmic axes: x by powers of two, y by powers of ten.
class Panel {
 public:
  Panel(double x, double y, std::string* svg) : x_(x), y_(y), svg_(*svg) {}

  void draw(const std::string& head, const std::vector<Series>& all,
            const std::vector<std::pair<double, double>> Series::*line, const std::string& unit) {
    for (const Series& series : all)
      for (const auto& [size, value] : series.*line) {
        sizes_.take(std::log2(size));
        values_.take(std::log10(value));
      }
    svg_ += "<rect class=\"panel\" x=\"" + number(x_) + "\" y=\"" + number(y_) + "\" width=\"" + number(panel_width) +
            "\" height=\"" + number(panel_height) + "\" rx=\"6\"/>\n";
    text("head", x_, y_ - 10, "start", head);
    if (sizes_.least > sizes_.most) return;  // nothing to draw
    values_.least = std::floor(values_.least);
    values_.most = std::max(std::ceil(values_.most), values_.least + 1);
    if (sizes_.most < sizes_.least + 1) sizes_.most = sizes_.least + 1;
    draw_axes(unit);
    for (size_t s = 0; s < all.size(); ++s) draw_line(all[s].*line, s % colours);
  }

 private:
  double across(double size) const {
    constexpr double margin = 14;
    return x_ + margin + (panel_width - 2 * margin) * (std::log2(size) - sizes_.least) / (sizes_.most - sizes_.least);
  }
  double up(double value) const {
    return y_ + panel_height * (1 - (std::log10(value) - values_.least) / (values_.most - values_.least));
  }
  void text(const char* css, double x, double y, const char* anchor, const std::string& words) {
    svg_ += "<text class=\"" + std::string(css) + "\" x=\"" + number(x) + "\" y=\"" + number(y) + "\" text-anchor=\"" +
            anchor + "\">" + texts::xml_escaped(words) + "</text>\n";
  }

  void draw_axes(const std::string& unit) {
    const double step = std::max(1.0, std::ceil((sizes_.most - sizes_.least) / 8));
    for (double power = std::ceil(sizes_.least); power <= sizes_.most + 1e-9; power += step) {
      const double x = across(std::exp2(power));
      svg_ += "<path class=\"grid\" d=\"M" + number(x) + " " + number(y_) + "v" + number(panel_height) + "\"/>\n";
      text("note", x, y_ + panel_height + 18, "middle", size_text(std::exp2(power)));
    }
    text("note", x_ + panel_width, y_ + panel_height + 36, "end", "size in bytes");
    for (double power = values_.least; power <= values_.most + 1e-9; ++power) {
      const double y = up(std::pow(10, power));
      svg_ += "<path class=\"grid\" d=\"M" + number(x_) + " " + number(y) + "h" + number(panel_width) + "\"/>\n";
      text("note", x_ - 8, y + 4, "end", short_number(std::pow(10, power)) + " " + unit);
    }
  }

  void draw_line(std::vector<std::pair<double, double>> line, size_t colour) {
    std::sort(line.begin(), line.end());
    std::string path, points;
    const std::string css = "s" + std::to_string(colour);
    for (const auto& [size, value] : line) {
      path += (path.empty() ? "M" : "L") + number(across(size)) + " " + number(up(value));
      points += "<circle class=\"" + css + "\" cx=\"" + number(across(size)) + "\" cy=\"" + number(up(value)) +
                "\" r=\"3\"><title>" + size_text(size) + ": " + short_number(value) + "</title></circle>";
    }
    if (!path.empty()) svg_ += "<path class=\"line " + css + "\" d=\"" + path + "\"/>" + points + "\n";
  }

  const double x_, y_;
  std::string& svg_;
  Range sizes_, values_;
};

void draw_legend(const std::vector<Series>& all, double y, std::string* svg) {
  double x = left;
  for (size_t s = 0; s < all.size(); ++s) {
    *svg += "<rect class=\"s" + std::to_string(s % colours) + "\" x=\"" + number(x) + "\" y=\"" + number(y - 7) +
            "\" width=\"18\" height=\"4\"/><text x=\"" + number(x + 24) + "\" y=\"" + number(y) + "\">" +
            texts::xml_escaped(all[s].name) + "</text>\n";
    x += 48 + 7 * double(all[s].name.size());
  }
}

}  // namespace

std::string plot(const Options& options, const Setting& setting, const std::vector<Row>& rows,
                 const std::vector<Peer>& peers) {
  std::string body;
  double y = top;
  for (const Collective* collective : options.collectives) {
    const std::vector<Series> all = series_of(collective->name, rows, peers);
    if (all.empty()) continue;
    draw_legend(all, y - 32, &body);
    Panel(left, y, &body).draw(std::string(collective->name) + ": time", all, &Series::time, "us");
    Panel(left + panel_width + gap, y, &body)
        .draw(std::string(collective->name) + ": bus bandwidth", all, &Series::bandwidth, "GB/s");
    y += row_height;
  }
  std::string title = std::to_string(setting.nranks) + " ranks";
  if (!setting.transports.empty()) title += " over " + setting.transports;
  const std::string width = number(left + 2 * panel_width + gap + 24), height = number(y - 50);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + width + " " + height + "\" width=\"" + width +
         "\" height=\"" + height + "\" role=\"img\">\n<title>" + texts::xml_escaped(title) + "</title>\n" + style +
         "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n<text class=\"title\" x=\"24\" y=\"38\">" +
         texts::xml_escaped(title) + "</text>\n" + body + "</svg>\n";
}

}  // namespace perf
