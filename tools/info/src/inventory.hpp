// SPDX-License-Identifier: Apache-2.0
//
// The report: plugins, host, settings and the ranks' answers, as text or as JSON.
#pragma once

#include <tutti/registry.h>

#include <optional>
#include <string>
#include <vector>

#include "host_facts.hpp"
#include "question.hpp"

namespace info {

struct Inventory {
  std::vector<tutti::PluginRecord> plugins;
  HostFacts host;
  std::vector<std::pair<std::string, std::string>> settings;
  std::vector<std::string> unknown_settings;  // sentences
};

// Every setting of the library, with its value and its meaning in plain text.
struct KnownSetting {
  tutti::SettingRecord record;
  std::optional<std::string> value;  // where it is set
};
std::vector<KnownSetting> known_settings();
std::string settings_text(const std::vector<KnownSetting>& all);
std::string settings_json(const std::vector<KnownSetting>& all);

std::string inventory_text(const Inventory& inventory);
std::string answer_text(const Answer& answer);
// Either part may be absent.
std::string json_text(const std::optional<Inventory>& inventory, const std::optional<Answer>& answer);

}  // namespace info
