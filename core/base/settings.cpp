// SPDX-License-Identifier: Apache-2.0
#include "base/settings.hpp"

#include <fmt/format.h>
#include <tutti/plugin/types.h>

#include <cstdlib>
#include <tutti/base/text.hpp>

#include "base/failure.hpp"

namespace tutti::core {

std::optional<std::string> setting(SettingName name) {
  const char* value = std::getenv(name.name());
  return value ? std::optional<std::string>(value) : std::nullopt;
}

bool flag_setting(SettingName name) {
  const std::string text = setting(name).value_or(std::string(name.row().value));
  if (text == "1" || text == "on") return true;
  if (text == "0" || text == "off") return false;
  throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("{}=\"{}\": expected 0, 1, off or on", name.name(), text));
}

uint64_t number_setting(SettingName name) {
  const auto& [least, most] = name.row().limits;
  const std::string text = setting(name).value_or(std::string(name.row().value));
  if (const auto value = whole_number(text, least, most)) return *value;
  throw Failure(TUTTI_INVALID_ARGUMENT,
                fmt::format("{}=\"{}\" is not a whole number from {} to {}", name.name(), text, least, most));
}

uint64_t seconds_setting(SettingName name) {
  constexpr double least_seconds = 1e-9, most_seconds = 1e9;
  const std::string text = setting(name).value_or(std::string(name.row().value));
  const std::optional<double> seconds = decimal_number(text);
  if (!seconds || !(*seconds >= least_seconds) || *seconds > most_seconds)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("{}=\"{}\" is not a positive number of seconds, 1e-9 to 1e9, with a point as in 0.5",
                              name.name(), text));
  return static_cast<uint64_t>(*seconds * 1e9);
}

std::optional<PluginPlace> plugin_place(const std::string& text) {
  constexpr std::string_view prefix = "plugin:";
  if (!text.starts_with(prefix)) return std::nullopt;
  const size_t colon = text.find(':', prefix.size());
  return PluginPlace{text.substr(prefix.size(), colon - prefix.size()),
                     colon == text.npos ? "" : text.substr(colon + 1)};
}

}  // namespace tutti::core
