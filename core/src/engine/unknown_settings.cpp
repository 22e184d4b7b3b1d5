// SPDX-License-Identifier: Apache-2.0
#include "engine/unknown_settings.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cctype>
#include <numeric>
#include <utility>

#include "engine/host.hpp"

namespace tutti::core {
namespace {

constexpr std::string_view own[] = {"TUTTI_ADDR",
                                    "TUTTI_ALGO",
                                    "TUTTI_CHECK",
                                    "TUTTI_CHECKSUM",
                                    "TUTTI_CONNECT_TIMEOUT",
                                    "TUTTI_FUSED",
                                    "TUTTI_HOST_ID",
                                    "TUTTI_HOST_STAGING",
                                    "TUTTI_HOST_TIMEOUT",
                                    "TUTTI_JOB",
                                    "TUTTI_LOCAL_RANK",
                                    "TUTTI_LOCAL_WORLD_SIZE",
                                    "TUTTI_LOG",
                                    "TUTTI_PLUGIN_PATH",
                                    "TUTTI_PORT",
                                    "TUTTI_RANK",
                                    "TUTTI_RECORDER",
                                    "TUTTI_RECORDER_DIR",
                                    "TUTTI_RENDEZVOUS",
                                    "TUTTI_SECRET",
                                    "TUTTI_TIMEOUT",
                                    "TUTTI_TLS_CA",
                                    "TUTTI_TLS_CERTIFICATE",
                                    "TUTTI_TLS_KEY",
                                    "TUTTI_TRANSPORT",
                                    "TUTTI_VERIFY",
                                    "TUTTI_WORLD_SIZE"};
constexpr std::string_view of_programs[] = {"TUTTI_PERF_", "TUTTI_CONFORM_", "TUTTI_TEST_"};
constexpr size_t far = 4;  // names that differ more are not meant

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

// What begins the settings of a plugin: net-tcp -> TUTTI_NET_TCP.
std::string prefix_of(const std::string& plugin) {
  std::string text = "TUTTI_";
  for (const char c : plugin) text += c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
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

std::span<const std::string_view> core_settings() { return own; }

std::vector<std::string> unknown_settings(const std::vector<std::string>& names, const std::vector<std::string>& asked,
                                          const std::vector<std::string>& plugins) {
  std::vector<std::string> known(asked);
  known.insert(known.end(), std::begin(own), std::end(own));
  std::vector<std::string> sentences;
  for (const std::string& name : names) {
    const auto begins = [&](std::string_view prefix) { return name.starts_with(prefix); };
    if (std::find(known.begin(), known.end(), name) != known.end() ||
        std::any_of(std::begin(of_programs), std::end(of_programs), begins))
      continue;
    const auto nearest = std::min_element(known.begin(), known.end(), [&](const auto& a, const auto& b) {
      return distance(name, a) < distance(name, b);
    });
    const size_t off = distance(name, *nearest);
    if (belongs_to_a_plugin(name, plugins) && off > 2) continue;
    sentences.push_back(fmt::format("{} is set, but there is no such setting{}", name,
                                    off <= far ? fmt::format("; did you mean {}?", *nearest)
                                               : std::string("; core/README.md lists what there is")));
  }
  return sentences;
}

void warn_of_unknown_settings() {
  static std::atomic_flag done;
  if (done.test_and_set()) return;
  std::vector<std::string> plugins;
  for (const PluginRecord& record : list_plugins()) {
    plugins.push_back(record.id);
    plugins.insert(plugins.end(), record.transports.begin(), record.transports.end());
    plugins.insert(plugins.end(), record.algorithms.begin(), record.algorithms.end());
  }
  std::erase(plugins, "");
  for (const std::string& sentence : unknown_settings(names_in_environment(), asked_settings(), plugins))
    log(TUTTI_LOG_WARN, "settings", sentence);
}

}  // namespace tutti::core
