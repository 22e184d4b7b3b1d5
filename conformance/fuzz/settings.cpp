// SPDX-License-Identifier: Apache-2.0
#include "fuzz/settings.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <tutti/schedule.h>

#include <algorithm>

#include "chaos/faults.hpp"
#include "oracle/reference.hpp"

namespace tutti::conformance::fuzz {
namespace {

struct Setting {
  const char* name;
  uint32_t percent;  // of the programs have it
  std::vector<const char*> values;
};

const std::vector<Setting>& table() {
  static const std::vector<Setting> all{
      {"TUTTI_TCP_SOCKETS", 30, {"1", "2", "3", "8"}},
      {"TUTTI_TCP_FRAGMENT_BYTES", 30, {"4096", "65536", "1048576"}},
      {"TUTTI_TCP_EAGER_BYTES", 25, {"4096", "65536", "262144"}},
      {"TUTTI_TCP_BUFFER_BYTES", 25, {"0", "4096", "65536"}},
      {"TUTTI_TCP_KEEPALIVE", 15, {"0", "1"}},
      {"TUTTI_SHM_SLOT_BYTES", 30, {"4096", "8192", "262144"}},
      {"TUTTI_SHM_SLOTS", 30, {"1", "2", "8"}},
      {"TUTTI_SHM_DIRECT_COPY", 30, {"0"}},
      {"TUTTI_SHM_STREAM_BYTES", 20, {"0", "4096", "1000000"}},
      {"TUTTI_CHECK", 20, {"1"}},
      {"TUTTI_CHECKSUM", 20, {"1"}},
      {"TUTTI_WRAP", 20, {"checksum"}},
      {"TUTTI_VERIFY", 4, {"1"}},
      {"TUTTI_RECORDER", 20, {"0"}},
      {"TUTTI_SECRET", 30, {"00112233445566778899aabbccddeeff"}},
  };
  return all;
}

// True if the algorithm serves the collective for any number of the program's ranks, with each of them as root.
bool serves(const tutti_algorithm& algorithm, uint32_t collective, uint32_t most_ranks) {
  for (uint32_t n = 1; n <= most_ranks; ++n)
    for (uint32_t root = 0; root < (rooted(collective) ? n : 1); ++root) {
      const Problem problem{collective, n, root, 1, {}, {}};
      const tutti_query query = make_query(problem, 0);
      const bool able =
          (algorithm.collectives >> collective & 1) && algorithm.supports(algorithm.self, &query) == TUTTI_OK;
      take_plugin_error();
      if (!able) return false;
    }
  return true;
}

// For some collectives the algorithms are chosen by lot, in the place of the selector.
std::string draw_algorithms(Lot& lot, uint32_t ranks) {
  std::string text;
  for (uint32_t c = TUTTI_BROADCAST; c <= last_collective; ++c) {
    if (!lot.chance(50)) continue;
    std::vector<std::string> able;
    for (const tutti_algorithm* algorithm : list_algorithms())
      if (serves(*algorithm, c, ranks)) able.emplace_back(algorithm->name);
    if (able.empty()) continue;
    lot.shuffle(able);
    able.resize(1 + lot.below(std::min<size_t>(able.size(), 2)));
    text += fmt::format("{}{}:{}", text.empty() ? "" : ";", collective_name(c), fmt::join(able, ","));
  }
  return text;
}

}  // namespace

std::vector<std::string> draw_settings(Lot& lot, const Program& program, bool chaos) {
  std::vector<std::string> all;
  for (const Setting& setting : table())
    if (lot.chance(setting.percent)) all.push_back(fmt::format("{}={}", setting.name, lot.pick(setting.values)));
  if (lot.chance(30))
    if (const std::string algorithms = draw_algorithms(lot, program.ranks); !algorithms.empty())
      all.push_back("TUTTI_ALGO=" + algorithms);
  if (!chaos) return all;
  all.push_back(fmt::format("TUTTI_CHAOS_OVER={}", lot.chance(50) ? "shm" : "tcp"));
  const auto faults = allowed_faults();
  const std::string script = faults[lot.below(faults.size())].script;
  all.push_back("TUTTI_CHAOS=" + (script.empty() ? "random" : script));
  all.push_back(fmt::format("TUTTI_CHAOS_SEED={}", lot.below(1'000'000)));
  return all;
}

void set(std::vector<std::string>& settings, const std::string& setting) {
  const std::string name = setting.substr(0, setting.find('=') + 1);
  std::erase_if(settings, [&](const std::string& one) { return one.starts_with(name); });
  settings.push_back(setting);
}

bool is_set(const std::vector<std::string>& settings, const std::string& name) {
  return std::any_of(settings.begin(), settings.end(),
                     [&](const std::string& one) { return one.starts_with(name + "="); });
}

}  // namespace tutti::conformance::fuzz
