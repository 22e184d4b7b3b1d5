// SPDX-License-Identifier: Apache-2.0
#include "options.hpp"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace tutti::conformance {
namespace {

// Insertions, removals and replacements from one to the other.
size_t distance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = std::exchange(row[0], i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
}

std::string listed(const std::vector<std::string>& known) {
  return known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", "));
}

// Decimal, or hexadecimal after 0x; the whole text.
bool read_whole(std::string_view text, uint64_t* value) {
  const bool hexadecimal = text.starts_with("0x");
  if (hexadecimal) text.remove_prefix(2);
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), *value, hexadecimal ? 16 : 10);
  return error == std::errc() && end == text.data() + text.size();
}

}  // namespace

std::string did_you_mean(const std::string& word, const std::vector<std::string>& known) {
  const auto nearest = std::min_element(
      known.begin(), known.end(), [&](const auto& a, const auto& b) { return distance(word, a) < distance(word, b); });
  // At most a third of the letters may be wrong, and two of a short word.
  if (word.empty() || nearest == known.end()) return {};
  const size_t off = distance(word, *nearest), far = std::max<size_t>(2, nearest->size() / 3);
  return off <= far && off < nearest->size() ? fmt::format("; did you mean \"{}\"?", *nearest) : "";
}

void require_known(const std::string& option, const std::vector<std::string>& values,
                   const std::vector<std::string>& known) {
  for (const std::string& value : values)
    if (std::find(known.begin(), known.end(), value) == known.end())
      throw std::invalid_argument(fmt::format("{}: unknown value \"{}\"; known are {}{}", option, value, listed(known),
                                              did_you_mean(value, known)));
}

void unknown_word(const std::string& what, const std::string& word, const std::vector<std::string>& known) {
  throw std::invalid_argument(
      fmt::format("there is no {} \"{}\"; known are {}{}", what, word, listed(known), did_you_mean(word, known)));
}

uint64_t whole_number(const std::string& option, const std::string& text, uint64_t least, uint64_t most) {
  uint64_t value = 0;
  if (read_whole(text, &value) && value >= least && value <= most) return value;
  throw std::invalid_argument(
      most == std::numeric_limits<uint64_t>::max()
          ? fmt::format("{}: expected a whole number of at most 64 bits (12, 0xc), got {}", option,
                        text.empty() ? "\"\"" : text)
          : fmt::format("{}: expected {} to {}, got {}", option, least, most, text.empty() ? "\"\"" : text));
}

Level level_from(const std::string& text) {
  std::vector<std::string> known;
  for (const Level level : {Level::smoke, Level::quick, Level::standard, Level::full}) {
    if (text == level_name(level)) return level;
    known.emplace_back(level_name(level));
  }
  require_known("--level", {text}, known);
  return Level::quick;
}

Share share_from(const std::string& text) {
  constexpr uint64_t most = 10'000;
  const size_t slash = text.find('/');
  uint64_t k = 0, n = 0;
  if (slash == std::string::npos || !read_whole(text.substr(0, slash), &k) || !read_whole(text.substr(slash + 1), &n) ||
      k < 1 || k > n || n > most)
    throw std::invalid_argument(fmt::format(
        "--share: expected K/N, the K-th of N shares, with K from 1 to N and N at most {}, got \"{}\"", most, text));
  return {static_cast<uint32_t>(k), static_cast<uint32_t>(n)};
}

CLI::Option* add_number(CLI::App& app, const char* name, double& value, double least, double most,
                        const std::string& text) {
  const auto take = [name = std::string(name), least, most, &value](const std::string& given) {
    const auto [end, error] = std::from_chars(given.data(), given.data() + given.size(), value);
    if (error != std::errc() || end != given.data() + given.size() || !(value >= least && value <= most))
      throw std::invalid_argument(fmt::format("{}: expected a number from {} to {}, got {}", name, least, most,
                                              given.empty() ? "\"\"" : given));
  };
  return app.add_option_function<std::string>(name, take, fmt::format("{}, {} to {} [{}]", text, least, most, value))
      ->type_name("NUMBER");
}

}  // namespace tutti::conformance
