// SPDX-License-Identifier: Apache-2.0
#include "base/settings.hpp"

#include <fmt/format.h>
#include <tutti/plugin/types.h>

#include <cstdlib>
#include <tutti/base/text.hpp>

#include "base/failure.hpp"

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
  if (const auto value = whole_number(*text, 0, most)) return *value;
  throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("{}=\"{}\" is not a whole number from 0 to {}", name, *text, most));
}

uint64_t seconds_setting(const char* name, uint64_t fallback_seconds) {
  constexpr double least_seconds = 1e-9, most_seconds = 1e9;
  const auto text = setting(name);
  if (!text) return fallback_seconds * 1'000'000'000;
  const std::optional<double> seconds = decimal_number(*text);
  if (!seconds || !(*seconds >= least_seconds) || *seconds > most_seconds)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("{}=\"{}\" is not a positive number of seconds, 1e-9 to 1e9, with a point as in 0.5", name,
                              *text));
  return static_cast<uint64_t>(*seconds * 1e9);
}

}  // namespace tutti::core
