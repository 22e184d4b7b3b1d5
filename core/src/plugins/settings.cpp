// SPDX-License-Identifier: Apache-2.0
#include "plugins/settings.hpp"

#include <fmt/format.h>
#include <tutti/plugin/types.h>

#include <charconv>
#include <cmath>
#include <cstdlib>

#include "bootstrap/failure.hpp"

namespace tutti::core {

std::optional<std::string> setting(const char* name) {
  const char* value = std::getenv(name);
  return value ? std::optional<std::string>(value) : std::nullopt;
}

bool flag_setting(const char* name, bool fallback) {
  const std::string text = setting(name).value_or(fallback ? "1" : "0");
  if (text == "1" || text == "on") return true;
  if (text == "0" || text == "off") return false;
  throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("{}=\"{}\" is none of 0, 1, off, on", name, text));
}

uint64_t number_setting(const char* name, uint64_t fallback, uint64_t most) {
  const auto text = setting(name);
  if (!text) return fallback;
  uint64_t value = 0;
  const auto [end, code] = std::from_chars(text->data(), text->data() + text->size(), value);
  if (text->empty() || code != std::errc() || *end || value > most)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("{}=\"{}\" is not a whole number from 0 to {}", name, *text, most));
  return value;
}

uint64_t seconds_setting(const char* name, uint64_t fallback_seconds) {
  constexpr double most_seconds = 1e9;
  const auto text = setting(name);
  if (!text) return fallback_seconds * 1'000'000'000;
  char* end = nullptr;
  const double seconds = std::strtod(text->c_str(), &end);
  if (text->empty() || *end || !(seconds > 0) || seconds > most_seconds)
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("{}=\"{}\" is not a positive number of seconds", name, *text));
  return static_cast<uint64_t>(seconds * 1e9);
}

}  // namespace tutti::core
