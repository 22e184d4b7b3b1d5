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
#include "base/wire.hpp"
#include "engine/choose/tuning.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

// The processors that this thread may use; none: the system does not report them.
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
  return static_cast<int32_t>(number_setting("TUTTI_NUMA_NODE"));
}

// A setting, or an algorithm and where it comes from, as messages name them.
struct NamedValue {
  std::string name, value;

  bool operator==(const NamedValue&) const = default;
  static void fields(auto& wire, auto& named) {
    wire(Field("name", named.name), Field("value", named.value, 0, SIZE_MAX));
  }
};
std::string in_quotes(std::string_view text) { return '"' + printable(text, SIZE_MAX) + '"'; }

// A rank's word to the others is its settings and this.
struct Offer {
  uint64_t id = 0;  // rank 0's is the communicator's
  bool device = false, traces = false;
  std::string tuning;             // the digest of its file, in quotes; "": it has none
  std::vector<NamedValue> algorithms;  // and collectives, whose names differ

  static void fields(auto& wire, auto& offer) {
    wire(offer.id, offer.device, offer.traces, Field("tuning", offer.tuning), offer.algorithms);
  }
};
// The offers of rank 0, and of each rank whose offer differs, by rank.
using Offers = std::map<uint32_t, Offer>;

std::vector<NamedValue> named_algorithms() {
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
  std::vector<NamedValue> all;
  for (const auto& [name, version] : versions) all.push_back({name, in_quotes(version)});
  return all;
}

// The tables that all ranks have.
template <typename Table>
std::vector<const Table*> common(const std::vector<const Table*>& own, const Offers& offers) {
  std::vector<const Table*> everywhere;
  for (const Table* table : own) {
    const auto in = [&](const Offer& offer) {
      const auto found = std::ranges::find(offer.algorithms, table->name, &NamedValue::name);
      return found == offer.algorithms.end() ? nullptr : &found->value;
    };
    const std::string* const first = in(offers.at(0));
    size_t having = 0;
    for (const auto& [r, offer] : offers) {
      const std::string* const theirs = in(offer);
      if (!theirs) continue;
      ++having;
      if (first && *theirs != *first)
        throw Failure(
            TUTTI_MISMATCH,
            fmt::format("algorithm {} comes from plugin {} on rank 0 and from {} on rank {}: all ranks need the same "
                        "plugin, and the same files where it reads any",
                        table->name, printable(*first, longest_message), printable(*theirs, longest_message), r));
    }
    if (having == offers.size()) everywhere.push_back(table);
  }
  return everywhere;
}

uint64_t random_id() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

// The settings that must be equal. A rank of another version has other settings, but the first is its version.
std::vector<NamedValue> settings_of(const Configuration& c) {
  return {{"version", in_quotes(tutti_version())},
          {"plugin ABI", std::to_string(TUTTI_ABI_MAJOR)},
          {"byte order", in_quotes(std::endian::native == std::endian::little ? "little" : "big")},
          {"name", in_quotes(c.name)},
          {"windows", std::to_string(c.windows)},
          {"lanes", std::to_string(c.lanes)},
          {"scratch limit", std::to_string(c.scratch_limit)},
          {"wrappers (TUTTI_WRAP)", in_quotes(c.wrappers)},
          {"traffic class (TUTTI_TRAFFIC_CLASS)", std::to_string(c.traffic_class)},
          {"checked mode (TUTTI_CHECK)", fmt::format("{}", c.checks_calls)},
          {"order (TUTTI_ORDER)", order_name(c.order)},
          {"transports (TUTTI_TRANSPORT)", in_quotes(c.transports)},
          {"algorithms (TUTTI_ALGO)", in_quotes(c.algorithms)},
          {"selector (TUTTI_SELECTOR)", in_quotes(c.selector)}};
}

// Rank 0's tuning file serves all ranks. `mine` is what this rank has; one that has a file has the same as rank 0. The
// file is sent where a rank has none: to new members, not to the parts of a split. Collective.
std::shared_ptr<const Tuning> common_tuning(const Offers& offers, std::shared_ptr<const Tuning> mine, uint32_t rank,
                                            const Gather& gather) {
  const std::string& first = offers.at(0).tuning;
  for (const auto& [r, offer] : offers)
    if (!offer.tuning.empty() && offer.tuning != first)
      throw Failure(TUTTI_MISMATCH,
                    fmt::format("the ranks disagree about tuning (TUTTI_TUNING): rank 0 has {}, rank {} has {}; rank "
                                "0's file serves all ranks: set it there, and elsewhere the same or none",
                                first.empty() ? "no file" : first, r, offer.tuning));
  if (std::ranges::all_of(offers, [&](const auto& said) { return said.second.tuning == first; })) return mine;
  const std::string text = gather(rank == 0 ? mine->text() : "").at(0);
  try {
    return mine ? mine : std::make_shared<const Tuning>(text);
  } catch (const std::runtime_error& wrong) {
    throw Failure(TUTTI_MISMATCH, fmt::format("rank 0's tuning file (TUTTI_TUNING): {}; all ranks need the plugins "
                                              "whose algorithms it names",
                                              printable(wrong.what(), longest_message)));
  }
}

}  // namespace

Agreement agree(uint32_t rank, const Configuration& configuration, const DeviceMemory& device, bool traces,
                const Gather& gather) {
  const std::vector<NamedValue> mine = settings_of(configuration);
  const Offer offer{rank == 0 ? random_id() : 0, static_cast<bool>(device), traces,
                    configuration.tuning ? in_quotes(configuration.tuning->digest()) : "", named_algorithms()};
  const std::vector<std::string> all = gather(WireWriter()(mine, offer).take());
  // Most ranks say the same: of those the first is looked at.
  Offers offers;
  std::vector<NamedValue> first;  // rank 0's settings
  std::set<std::string_view> said;
  for (uint32_t r = 0; r < all.size(); ++r) {
    if (!said.insert(all[r]).second) continue;
    const std::string what = fmt::format("rank {}'s introduction", r);
    WireReader reader(all[r], what.c_str());
    std::vector<NamedValue> theirs;
    reader(theirs);
    theirs.resize(mine.size());
    if (r == 0) first = theirs;
    for (size_t i = 0; i < mine.size(); ++i)
      if (theirs[i] != first[i])
        throw Failure(TUTTI_MISMATCH, fmt::format("the ranks disagree about {}: rank 0 has {}, rank {} has {}",
                                                  first[i].name, printable(first[i].value, longest_message), r,
                                                  printable(theirs[i].value, longest_message)));
    reader(offers[r]);
    reader.end();
  }
  const auto some = [&](bool Offer::*flag) {
    return std::ranges::any_of(offers, [flag](const auto& offer) { return offer.second.*flag; });
  };
  return {offers.at(0).id,
          common(list_algorithms(), offers),
          common(list_collectives(), offers),
          some(&Offer::device),
          some(&Offer::traces),
          common_tuning(offers, configuration.tuning, rank, gather)};
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
