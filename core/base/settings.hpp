// SPDX-License-Identifier: Apache-2.0
//
// The core's own settings from the environment. Unset is not the same as empty.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/settings_table.hpp"

namespace tutti::core {

// A setting by its name. A name that the table does not have cannot be compiled.
class SettingName {
 public:
  consteval SettingName(const char* name) : row_(row_of(name)) {}
  const Setting& row() const { return *row_; }
  const char* name() const { return row_->name.data(); }

 private:
  static consteval const Setting* row_of(std::string_view name) {
    for (const Setting& one : settings)
      if (one.name == name) return &one;
    throw "this setting is not in base/settings_table.hpp";
  }
  const Setting* row_;
};

// Nothing where it is not set.
std::optional<std::string> setting(SettingName name);
// The following give the table's value where it is not set, and throw Failure for what they do not expect.
// 1 or on: true; 0 or off: false.
bool flag_setting(SettingName name);
// A whole number within the table's limits.
uint64_t number_setting(SettingName name);
// A positive number of seconds (a fraction is allowed) as nanoseconds.
uint64_t seconds_setting(SettingName name);

// "plugin:NAME" or "plugin:NAME:PLACE"; nothing for any other text.
struct PluginPlace {
  std::string name, place;
};
std::optional<PluginPlace> plugin_place(const std::string& text);

}  // namespace tutti::core
