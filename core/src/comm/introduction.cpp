// SPDX-License-Identifier: Apache-2.0
#include "comm/introduction.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <tutti/plugin/transport.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <thread>

#include "base/failure.hpp"
#include "base/numa.hpp"
#include "base/settings.hpp"
#include "engine/choose/tuning.hpp"
#include "registry/host.hpp"
#include "registry/registry.hpp"
#include "topology/rank_json.hpp"

namespace tutti::core {
namespace {

// Those that this thread may use; none: the system does not tell.
Processors usable_processors() {
  cpu_set_t set;
  Processors usable;
  static_assert(CPU_SETSIZE == usable.size());
  if (sched_getaffinity(0, sizeof set, &set) == 0)
    for (size_t p = 0; p < usable.size(); ++p) usable[p] = CPU_ISSET(p, &set);
  return usable;
}

// The node that TUTTI_NUMA_NODE names.
std::optional<int32_t> told_numa() {
  if (!setting("TUTTI_NUMA_NODE")) return std::nullopt;
  return static_cast<int32_t>(number_setting("TUTTI_NUMA_NODE", 0, 65535));
}

// Plugins and versions, by the names of algorithms and collectives, which differ.
std::map<std::string, std::string> algorithm_versions() {
  constexpr std::string_view collective = TUTTI_COLLECTIVE_ID " ";
  std::map<std::string, std::string> versions;
  for (const PluginRecord& record : list_plugins()) {
    for (const std::string& name : record.algorithms) versions[name] = record.id + " " + record.version;
    for (const std::string& name : record.others)
      if (name.starts_with(collective)) versions[name.substr(collective.size())] = record.id + " " + record.version;
  }
  for (const tutti_algorithm* algorithm : list_algorithms())
    if (TUTTI_HAS_FIELD(tutti_algorithm, algorithm, digest) && algorithm->digest)
      versions[algorithm->name] += fmt::format(" with digest {:016x}", algorithm->digest);
  return versions;
}

// Those that all ranks have. `ranks` are rank 0 and those that say something else.
template <typename Table>
std::vector<const Table*> common(const std::vector<const Table*>& own, const std::map<uint32_t, Json>& ranks) {
  std::vector<const Table*> everywhere;
  const Json& first = ranks.at(0).at("algorithms");
  for (const Table* table : own) {
    size_t having = 0;
    for (const auto& [r, rank] : ranks) {
      const Json& theirs = rank.at("algorithms");
      if (!theirs.contains(table->name)) continue;
      ++having;
      if (first.contains(table->name) && theirs.at(table->name) != first.at(table->name))
        throw Failure(
            TUTTI_MISMATCH,
            fmt::format("algorithm {} comes from plugin {} on rank 0 and from {} on rank {}: all ranks need the same "
                        "plugin, and the same files where it reads any",
                        table->name, first.at(table->name).dump(), theirs.at(table->name).dump(), r));
    }
    if (having == ranks.size()) everywhere.push_back(table);
  }
  return everywhere;
}

uint64_t random_id() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// The settings that must be equal, as messages name them.
Json settings_of(const Configuration& c) {
  return {{"version", tutti_version()},
          {"plugin ABI", TUTTI_ABI_MAJOR},
          {"byte order", std::endian::native == std::endian::little ? "little" : "big"},
          {"name", c.name},
          {"windows", c.windows},
          {"lanes", c.lanes},
          {"scratch limit", c.scratch_limit},
          {"checksums (TUTTI_CHECKSUM)", c.checksums},
          {"traffic class (TUTTI_TRAFFIC_CLASS)", c.traffic_class},
          {"checked mode (TUTTI_CHECK)", c.checks_calls},
          {"canonical order (TUTTI_ORDER)", c.canonical},
          {"transports (TUTTI_TRANSPORT)", c.transports},
          {"algorithms (TUTTI_ALGO)", c.algorithms},
          {"selector (TUTTI_SELECTOR)", c.selector}};
}

constexpr const char* tuning = "tuning (TUTTI_TUNING)";  // a file's digest, or null

// Rank 0's tuning file serves all ranks. `mine` is what this rank has; one that has a file has the same as rank 0. The
// file is sent where a rank has none: to new members, not to the parts of a split. Collective.
std::shared_ptr<const Tuning> common_tuning(const std::map<uint32_t, Json>& ranks, std::shared_ptr<const Tuning> mine,
                                            uint32_t rank, const Gather& gather) {
  const Json& first = ranks.at(0).at(tuning);
  for (const auto& [r, said] : ranks)
    if (const Json& theirs = said.at(tuning); !theirs.is_null() && theirs != first)
      throw Failure(TUTTI_MISMATCH,
                    fmt::format("the ranks disagree about {}: rank 0 has {}, rank {} has {}; rank 0's file serves all "
                                "ranks: set it there, and elsewhere the same or none",
                                tuning, first.is_null() ? "no file" : first.dump(), r, theirs.dump()));
  if (std::ranges::all_of(ranks, [&](const auto& said) { return said.second.at(tuning) == first; })) return mine;
  const std::string text = gather(rank == 0 ? mine->text() : "").at(0);
  try {
    return mine ? mine : std::make_shared<const Tuning>(text);
  } catch (const std::runtime_error& wrong) {
    throw Failure(TUTTI_MISMATCH, fmt::format("rank 0's tuning file (TUTTI_TUNING): {}; all ranks need the plugins "
                                              "whose algorithms it names",
                                              wrong.what()));
  }
}

}  // namespace

Agreement agree(uint32_t rank, const Configuration& configuration, const DeviceMemory& device, bool traces,
                const Gather& gather) {
  const Json settings = settings_of(configuration);
  Json mine = settings;
  if (rank == 0) mine["id"] = random_id();
  mine["algorithms"] = algorithm_versions();
  mine["device"] = static_cast<bool>(device);
  mine["traces"] = traces;
  mine[tuning] = configuration.tuning ? Json(configuration.tuning->digest()) : Json();
  const std::vector<std::string> all = gather(encode_json(mine));
  try {
    // Most ranks say the same: of those the first is looked at.
    std::map<uint32_t, Json> ranks;
    std::set<std::string_view> said;
    for (uint32_t r = 0; r < all.size(); ++r)
      if (said.insert(all[r]).second) ranks.emplace(r, decode_json(all[r]));
    const Json& first = ranks.at(0);
    bool devices = false, some_trace = false;
    for (const auto& [r, theirs] : ranks) {
      devices |= theirs.at("device").get<bool>();
      some_trace |= theirs.at("traces").get<bool>();
      for (const auto& [key, value] : settings.items())
        if (theirs.at(key) != first.at(key))
          throw Failure(TUTTI_MISMATCH, fmt::format("the ranks disagree about {}: rank 0 has {}, rank {} has {}", key,
                                                    first.at(key).dump(), r, theirs.at(key).dump()));
    }
    return {first.at("id").get<uint64_t>(),
            common(list_algorithms(), ranks),
            common(list_collectives(), ranks),
            devices,
            some_trace,
            common_tuning(ranks, configuration.tuning, rank, gather)};
  } catch (const Json::exception& e) {
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("a rank introduced itself in a form that is not understood ({}): do all ranks run "
                              "the same version of Tutti, {}?",
                              e.what(), tutti_version()));
  }
}

RankDescription describe_process(const DeviceMemory& device) {
  static const uint64_t instance = random_id();
  RankDescription mine;
  mine.host = host_key();
  mine.process = static_cast<uint64_t>(getpid());
  mine.instance = instance;
  mine.processors = usable_processors();
  mine.cores = mine.processors.any() ? static_cast<uint32_t>(mine.processors.count())
                                     : std::max(1u, std::thread::hardware_concurrency());
  const std::optional<int32_t> told = told_numa();
  mine.numa = told ? *told : numa_of_process();
  if (!device) return mine;
  const DeviceFacts facts = facts_of(device);
  mine.device = {
      device.tables.memory->name, device.device,       facts.id, facts.pci, facts.numa, facts.link_latency_ns,
      facts.link_bandwidth,       facts.copy_bandwidth};
  if (told) mine.device.numa = *told;
  return mine;
}

}  // namespace tutti::core
