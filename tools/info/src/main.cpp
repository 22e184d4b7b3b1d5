// SPDX-License-Identifier: Apache-2.0
//
// tutti-info: exit status 0; 1 when a plugin that the user named is refused, the ranks cannot be asked or standard
// output cannot be written; 2 for a wrong command line.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <fstream>
#include <stdexcept>
#include <string>
#include <tutti/topology.hpp>

#include "hang_report.hpp"
#include "inventory.hpp"
#include "network.hpp"
#include "options.hpp"
#include "question.hpp"
#include "standard_output/standard_output.hpp"
#include "topology_drawing.hpp"

namespace {

int show_inventory(const info::Options& options) {
  const info::Inventory inventory{tutti::list_plugins(), info::host_facts(), info::settings(),
                                  tutti::list_unknown_settings()};
  std::fputs((options.json ? info::json_text(inventory, {}) : info::inventory_text(inventory)).c_str(), stdout);
  const bool broken = std::any_of(inventory.plugins.begin(), inventory.plugins.end(),
                                  [](const tutti::PluginRecord& plugin) { return plugin.required && !plugin.loaded; });
  return broken ? 1 : 0;
}

void write(const std::string& path, const std::string& text) {
  errno = 0;
  std::ofstream file(path, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write \"" + path + "\": " + std::strerror(errno));
}

int show_answer(const info::Options& options) {
  const info::Answer answer = info::ask_ranks(options);
  if (!answer.speaks) return 0;
  if (!options.save.empty()) write(options.save, answer.file);
  if (!options.svg.empty()) write(options.svg, info::draw_topology(tutti::TopologyFile(answer.file)));
  std::fputs((options.json ? info::json_text({}, answer) : info::answer_text(answer)).c_str(), stdout);
  return 0;
}

int show_networks(const info::Options& options) {
  const std::vector<info::Network> networks = info::find_networks();
  std::fputs((options.json ? info::network_json(networks) : info::network_text(networks)).c_str(), stdout);
  return 0;
}

int show_settings(const info::Options& options) {
  const std::vector<info::KnownSetting> all = info::known_settings();
  std::fputs((options.json ? info::settings_json(all) : info::settings_text(all)).c_str(), stdout);
  return 0;
}

int show_hangs(const info::Options& options) {
  constexpr int trouble = 3;
  const info::HangReport report = info::find_hangs(options.hang_targets, options.all);
  std::fputs((options.json ? info::hang_json(report) : info::hang_text(report)).c_str(), stdout);
  if (report.communicators.empty()) return 1;
  return report.trouble() ? trouble : 0;
}

int run(int argc, char** argv) {
  int status = 0;
  const auto options = info::parse_options(argc, argv, &status);
  if (!options) return status;
  try {
    if (options->net) return show_networks(*options);
    if (options->settings) return show_settings(*options);
    if (options->hang) return show_hangs(*options);
    return options->asks_ranks() ? show_answer(*options) : show_inventory(*options);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "tutti-info: %s\n", e.what());
    return 1;
  }
}

}  // namespace

int main(int argc, char** argv) {
  tools::hold_standard_descriptors();
  return tools::exit_status("tutti-info", run(argc, argv));
}
