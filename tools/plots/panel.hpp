// SPDX-License-Identifier: Apache-2.0
//
// Lines over message size on logarithmic axes, as parts of an SVG.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "texts/texts.hpp"

namespace plots {

inline constexpr double panel_width = 470, panel_height = 300;

inline constexpr const char* style = R"(<style>
  text { font-family: system-ui, "Segoe UI", "DejaVu Sans", sans-serif; fill: #1f2933; font-size: 12px; }
  .title { font-size: 20px; font-weight: 600; } .head { font-size: 14px; font-weight: 600; } .note { fill: #6b7785; }
  .paper { fill: #ffffff; } .panel { fill: #f4f6f9; } .grid { stroke: #d9dfe7; }
  .line { fill: none; stroke-width: 2; }
  .s0 { stroke: #2f6fb5; fill: #2f6fb5; } .s1 { stroke: #b86a10; fill: #b86a10; } .s2 { stroke: #2c8453; fill: #2c8453; }
  .s3 { stroke: #7247ab; fill: #7247ab; } .s4 { stroke: #b33a55; fill: #b33a55; } .s5 { stroke: #5d6b79; fill: #5d6b79; }
  .s6 { stroke: #0f8b8d; fill: #0f8b8d; } .s7 { stroke: #a3318c; fill: #a3318c; } .s8 { stroke: #8a6d1d; fill: #8a6d1d; }
  .s9 { stroke: #3d4752; fill: #3d4752; }
  path.line { fill: none; }
  @media (prefers-color-scheme: dark) {
    text { fill: #e6eaef; } .note { fill: #97a3b0; } .paper { fill: #14181d; } .panel { fill: #1c222a; }
    .grid { stroke: #303944; }
    .s0 { stroke: #78b0f0; fill: #78b0f0; } .s1 { stroke: #f0ae5c; fill: #f0ae5c; } .s2 { stroke: #74cf9c; fill: #74cf9c; }
    .s3 { stroke: #bb98ee; fill: #bb98ee; } .s4 { stroke: #ee8ba2; fill: #ee8ba2; } .s5 { stroke: #a8b4c0; fill: #a8b4c0; }
    .s6 { stroke: #5cc9cb; fill: #5cc9cb; } .s7 { stroke: #dd85cb; fill: #dd85cb; } .s8 { stroke: #d1b45f; fill: #d1b45f; }
    .s9 { stroke: #d5dce4; fill: #d5dce4; }
  }
</style>
)";
inline constexpr size_t colours = 10;

using Line = std::vector<std::pair<double, double>>;  // values, above 0, by size in bytes

inline std::string number(double value) {
  return fmt::format("{:.1f}", value);
}

inline std::string short_number(double value) {
  return fmt::format("{:g}", value);
}

inline std::string size_text(double bytes) {
  const char* const units[] = {"", "K", "M", "G", "T"};
  size_t unit = 0;
  for (; bytes >= 1024 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return short_number(bytes) + units[unit];
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

  // A line for each of `all`, in the colour of its place.
  void draw(const std::string& head, const std::vector<Line>& all, const std::string& unit) {
    for (const Line& line : all)
      for (const auto& [size, value] : line) {
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
    for (size_t s = 0; s < all.size(); ++s) draw_line(all[s], s % colours);
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

  void draw_line(Line line, size_t colour) {
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

// The names of the lines, side by side.
inline void draw_legend(const std::vector<std::string>& names, double x, double y, std::string* svg) {
  for (size_t s = 0; s < names.size(); ++s) {
    *svg += "<rect class=\"s" + std::to_string(s % colours) + "\" x=\"" + number(x) + "\" y=\"" + number(y - 7) +
            "\" width=\"18\" height=\"4\"/><text x=\"" + number(x + 24) + "\" y=\"" + number(y) + "\">" +
            texts::xml_escaped(names[s]) + "</text>\n";
    x += 48 + 7 * double(names[s].size());
  }
}

// The whole picture: the style, a paper, the title and the body.
inline std::string picture(const std::string& title, double width, double height, const std::string& body) {
  const std::string w = number(width), h = number(height);
  return "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 " + w + " " + h + "\" width=\"" + w + "\" height=\"" +
         h + "\" role=\"img\">\n<title>" + texts::xml_escaped(title) + "</title>\n" + style +
         "<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n<text class=\"title\" x=\"24\" y=\"38\">" +
         texts::xml_escaped(title) + "</text>\n" + body + "</svg>\n";
}

}  // namespace plots
