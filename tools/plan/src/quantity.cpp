// SPDX-License-Identifier: Apache-2.0
#include "quantity.hpp"

#include <fmt/format.h>

#include <charconv>
#include <cmath>
#include <span>
#include <string_view>

namespace tutti::plan {
namespace {

struct Unit {
  std::string_view name;
  double factor;
};

std::optional<double> parse(std::string_view text, std::span<const Unit> units) {
  double number = 0;
  const auto [rest, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || !std::isfinite(number)) return std::nullopt;
  std::string_view unit(rest, size_t(text.data() + text.size() - rest));
  while (unit.starts_with(' ')) unit.remove_prefix(1);
  for (const Unit& known : units)
    if (unit == known.name) return number * known.factor;
  return std::nullopt;
}

}  // namespace

std::optional<double> parse_seconds(const std::string& text) {
  constexpr Unit units[] = {{"s", 1}, {"ms", 1e-3}, {"us", 1e-6}, {"ns", 1e-9}};
  return parse(text, units);
}

std::optional<double> parse_bandwidth(const std::string& text) {
  constexpr Unit units[] = {{"B/s", 1},          {"kB/s", 1e3},       {"MB/s", 1e6},     {"GB/s", 1e9},
                            {"TB/s", 1e12},      {"MiB/s", 0x1p20},   {"GiB/s", 0x1p30}, {"Mbit/s", 1e6 / 8},
                            {"Gbit/s", 1e9 / 8}, {"Tbit/s", 1e12 / 8}};
  return parse(text, units);
}

std::optional<uint64_t> parse_bytes(const std::string& text) {
  constexpr Unit units[] = {{"", 1},         {"B", 1},    {"K", 0x1p10}, {"KiB", 0x1p10}, {"kB", 1e3}, {"M", 0x1p20},
                            {"MiB", 0x1p20}, {"MB", 1e6}, {"G", 0x1p30}, {"GiB", 0x1p30}, {"GB", 1e9}};
  const std::optional<double> bytes = parse(text, units);
  if (!bytes || *bytes < 0 || *bytes > 0x1p50 || *bytes != std::floor(*bytes)) return std::nullopt;
  return uint64_t(*bytes);
}

std::string seconds_text(double seconds) {
  if (seconds == 0) return "0 us";
  if (seconds < 1e-3) return fmt::format("{:.4g} us", seconds * 1e6);
  if (seconds < 1) return fmt::format("{:.4g} ms", seconds * 1e3);
  return fmt::format("{:.4g} s", seconds);
}

std::string short_size(uint64_t bytes) {
  const char* const units[] = {"", "K", "M", "G", "T"};
  size_t unit = 0;
  for (; bytes >= 1024 && bytes % 1024 == 0 && unit + 1 < std::size(units); ++unit) bytes /= 1024;
  return fmt::format("{}{}", bytes, units[unit]);
}

std::string bytes_text(double bytes) {
  if (bytes < 1e3) return fmt::format("{:.0f} B", bytes);
  const char* const units[] = {"kB", "MB", "GB", "TB", "PB", "EB"};
  size_t unit = 0;
  for (bytes /= 1e3; bytes >= 1e3 && unit + 1 < std::size(units); ++unit) bytes /= 1e3;
  return fmt::format("{:.4g} {}", bytes, units[unit]);
}

}  // namespace tutti::plan
