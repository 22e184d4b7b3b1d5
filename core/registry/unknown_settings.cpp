// SPDX-License-Identifier: Apache-2.0
#include "registry/unknown_settings.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <numeric>
#include <tutti/base/text.hpp>
#include <utility>

#include "base/settings_table.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

constexpr std::string_view of_programs[] = {
    "TUTTI_PERF_", "TUTTI_CONFORM_", "TUTTI_MPI_", "TUTTI_NCCL_SERVES", "TUTTI_TEST_"};
constexpr size_t far = 4;         // names that differ more are not meant
constexpr size_t most_named = 8;  // further ones are counted
constexpr std::string_view readme_lists = "core/README.md lists what there is";

// Insertions, removals and replacements from one to the other.
size_t distance(std::string_view a, std::string_view b) {
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

// The name that differs least, and by how much; names whose lengths alone differ too much are not compared.
std::pair<std::string_view, size_t> nearest_of(const std::vector<std::string>& known, std::string_view name) {
  std::pair<std::string_view, size_t> nearest{"", far + 1};
  for (const std::string& other : known) {
    if (std::max(name.size(), other.size()) - std::min(name.size(), other.size()) > far) continue;
    if (const size_t off = distance(name, other); off < nearest.second) nearest = {other, off};
  }
  return nearest;
}

// A name may be as long as the system allows.
std::string shortened(const std::string& name) {
  constexpr size_t longest = 100;
  return name.size() <= longest ? name : name.substr(0, longest) + "...";
}

// The prefix of a plugin's settings: net-tcp -> TUTTI_NET_TCP.
std::string prefix_of(const std::string& plugin) {
  std::string text = "TUTTI_";
  for (const char c : plugin) text += c == '-' ? '_' : to_upper(c);
  return text;
}

bool belongs_to_a_plugin(const std::string& name, const std::vector<std::string>& plugins) {
  return std::any_of(plugins.begin(), plugins.end(), [&](const std::string& plugin) {
    const std::string prefix = prefix_of(plugin);
    return name == prefix || name.starts_with(prefix + "_");
  });
}

std::vector<std::string> names_in_environment() {
  std::vector<std::string> names;
  for (char** entry = environ; entry && *entry; ++entry) {
    const std::string_view text = *entry;
    if (text.starts_with("TUTTI_")) names.emplace_back(text.substr(0, text.find('=')));
  }
  return names;
}

}  // namespace

std::vector<std::string> unknown_settings(const std::vector<std::string>& names, const std::vector<std::string>& asked,
                                          const std::vector<std::string>& plugins) {
  std::vector<std::string> known(asked);
  for (const Setting& one : settings) known.emplace_back(one.name);
  std::vector<std::string> misspelt, strange;
  for (const std::string& name : names) {
    const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::find(known.begin(), known.end(), name) != known.end() ||
        std::any_of(std::begin(of_programs), std::end(of_programs), begins))
      continue;
    const auto [nearest, off] = nearest_of(known, name);
    if (belongs_to_a_plugin(name, plugins) && off > 2) continue;
    const bool near = off <= far;
    (near ? misspelt : strange)
        .push_back(fmt::format("{} is set, but there is no such setting; {}", shortened(name),
                               near ? fmt::format("did you mean {}?", nearest) : std::string(readme_lists)));
  }
  // Names that were probably meant to be settings come first.
  std::vector<std::string> sentences = std::move(misspelt);
  sentences.insert(sentences.end(), strange.begin(), strange.end());
  if (sentences.size() <= most_named) return sentences;
  const size_t more = sentences.size() - most_named;
  sentences.resize(most_named);
  sentences.push_back(
      fmt::format("{} more variables begin with TUTTI_, but there are no such settings; {}", more, readme_lists));
  return sentences;
}

void warn_of_unknown_settings() {
  static std::atomic_flag done;
  if (done.test_and_set()) return;
  for (const std::string& sentence : list_unknown_settings()) log(TUTTI_LOG_WARN, "settings", sentence);
}

}  // namespace tutti::core

namespace tutti {

std::vector<SettingRecord> list_settings() {
  std::vector<SettingRecord> rows;
  for (const core::Setting& one : core::settings)
    rows.push_back({std::string(one.name),
                    one.fallback.empty() && !one.value.empty() ? fmt::format("`{}`", one.value) : std::string(one.fallback),
                    std::string(one.meaning)});
  return rows;
}

std::vector<std::string> list_unknown_settings() {
  std::vector<std::string> plugins;
  for (const PluginRecord& record : list_plugins()) {
    plugins.push_back(record.id);
    plugins.insert(plugins.end(), record.transports.begin(), record.transports.end());
    plugins.insert(plugins.end(), record.algorithms.begin(), record.algorithms.end());
  }
  std::erase(plugins, "");
  return core::unknown_settings(core::names_in_environment(), core::asked_settings(), plugins);
}

}  // namespace tutti
