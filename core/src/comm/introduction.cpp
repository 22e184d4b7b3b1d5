// SPDX-License-Identifier: Apache-2.0
#include "comm/introduction.hpp"

#include <fmt/format.h>
#include <sched.h>
#include <tutti/plugin/transport.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <string_view>
#include <thread>

#include "bootstrap/failure.hpp"
#include "fabric/numa.hpp"
#include "plugins/host.hpp"
#include "plugins/registry.hpp"

namespace tutti::core {
namespace {

using Json = nlohmann::json;
// The value that another rank has encoded. Values nested deeper than a few levels are dropped: users of a Json recurse.
// Throws Json::exception.
Json decode(const std::string& text) {
  constexpr int most_levels = 8;
  return Json::parse(text, [](int level, Json::parse_event_t, const Json&) { return level <= most_levels; });
}

std::string encode(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

uint32_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return static_cast<uint32_t>(std::max(1, CPU_COUNT(&set)));
  return std::max(1u, std::thread::hardware_concurrency());
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
          {"transports (TUTTI_TRANSPORT)", c.transports},
          {"algorithms (TUTTI_ALGO)", c.algorithms},
          {"selector (TUTTI_SELECTOR)", c.selector}};
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
  const std::vector<std::string> all = gather(encode(mine));
  try {
    // Most ranks say the same: of those the first is looked at.
    std::map<uint32_t, Json> ranks;
    std::set<std::string_view> said;
    for (uint32_t r = 0; r < all.size(); ++r)
      if (said.insert(all[r]).second) ranks.emplace(r, decode(all[r]));
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
    return {first.at("id").get<uint64_t>(), common(list_algorithms(), ranks), common(list_collectives(), ranks),
            devices, some_trace};
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
  mine.cores = usable_cores();
  mine.numa = numa_of_process();
  if (!device) return mine;
  const DeviceFacts facts = facts_of(device);
  mine.device = {
      device.tables.memory->name, device.device,       facts.id, facts.pci, facts.numa, facts.link_latency_ns,
      facts.link_bandwidth,       facts.copy_bandwidth};
  return mine;
}

namespace {

// The fields of what a rank tells of itself, for Writer and Reader alike.
template <typename Side, typename Offer>
void offer_fields(Side& side, Offer& offer) {
  side.text("name", offer.name);
  side.text("version", offer.version);
  side.number("reach", offer.reach, TUTTI_REACH_PROCESS, TUTTI_REACH_NETWORK);
  side.text("fabric", offer.fabric);
  side.number("fragment", offer.fragment_bytes, 64);
  side.number("latency", offer.latency_ns);
  side.number("maps", offer.maps, 0, 1);
  side.number("bandwidth", offer.bandwidth);
  side.list("rails", offer.rails);
}
template <typename Side, typename Device>
void device_fields(Side& side, Device& device) {
  side.text("kind", device.kind);
  side.number("index", device.index);
  side.text("id", device.id);
  side.text("pci", device.pci);
  side.node("numa", device.numa);
  side.number("latency", device.link_latency_ns);
  side.number("bandwidth", device.link_bandwidth);
  side.number("copies", device.copy_bandwidth);
}
template <typename Side, typename Rank>
void rank_fields(Side& side, Rank& rank) {
  side.text("host", rank.host);
  side.number("process", rank.process);
  side.number("instance", rank.instance);
  side.number("cores", rank.cores, 1, 1u << 20);
  side.node("numa", rank.numa);
  side.device("device", rank.device);
  side.list("transports", rank.transports);
}

class Writer {
 public:
  template <typename Number>
  void number(const char* key, Number value, uint64_t = 0, uint64_t = 0) {
    object[key] = value;
  }
  void node(const char* key, int32_t node) { object[key] = node + 1; }  // 0: not known
  void text(const char* key, const std::string& value) { object[key] = value; }
  void device(const char* key, const DeviceDescription& device) {
    Writer inner;
    if (!device.kind.empty()) device_fields(inner, device);
    object[key] = inner.object;  // null: none
  }
  void list(const char* key, const std::vector<std::string>& texts) { object[key] = texts; }
  void list(const char* key, const std::vector<TransportOffer>& offers) {
    object[key] = Json::array();
    for (const TransportOffer& offer : offers) {
      Writer inner;
      offer_fields(inner, offer);
      object[key].push_back(inner.object);
    }
  }
  Json object;
};

// An impossible value is a Failure that names the rank.
class Reader {
 public:
  Reader(uint32_t rank, const Json& object) : rank_(rank), object_(object) {}

  template <typename Number>
  void number(const char* key, Number& value, uint64_t least = 0,
              uint64_t most = std::numeric_limits<Number>::max()) const {
    const Json& said = object_.at(key);
    if (!said.is_number_unsigned() || said.get<uint64_t>() < least || said.get<uint64_t>() > most) refuse(key);
    value = static_cast<Number>(said.get<uint64_t>());
  }
  void node(const char* key, int32_t& node) const {
    constexpr uint32_t most_nodes = 1 << 16;
    uint32_t code = 0;
    number(key, code, 0, most_nodes);
    node = static_cast<int32_t>(code) - 1;
  }
  void text(const char* key, std::string& value) const { value = printable(key, object_.at(key)); }
  void device(const char* key, DeviceDescription& device) const {
    if (object_.at(key).is_null()) return;
    Reader inner(rank_, object_.at(key));
    device_fields(inner, device);
    if (device.kind.empty()) refuse("kind");
  }
  void list(const char* key, std::vector<std::string>& texts) const {
    for (const Json& text : array(key)) texts.push_back(printable(key, text));
  }
  void list(const char* key, std::vector<TransportOffer>& offers) const {
    for (const Json& one : array(key)) {
      Reader inner(rank_, one);
      offer_fields(inner, offers.emplace_back());
      const auto same = [&](const TransportOffer& other) { return other.name == offers.back().name; };
      if (std::ranges::count_if(offers, same) > 1) refuse(key);
    }
  }

 private:
  [[noreturn]] void refuse(const char* key) const {
    throw Failure(TUTTI_MISMATCH, fmt::format("rank {} describes itself with an impossible \"{}\"", rank_, key));
  }
  const Json& array(const char* key) const {
    constexpr size_t most = 64;
    const Json& said = object_.at(key);
    if (!said.is_array() || said.size() > most) refuse(key);
    return said;
  }
  std::string printable(const char* key, const Json& said) const {
    constexpr size_t longest = 256;
    std::string text = said.get<std::string>();
    // It is printed: control characters would be obeyed by a terminal.
    if (text.size() > longest || std::ranges::any_of(text, [](unsigned char c) { return c < ' ' || c == 127; }))
      refuse(key);
    return text;
  }
  const uint32_t rank_;
  const Json& object_;
};

}  // namespace

std::string encode(const RankDescription& rank) {
  Writer writer;
  rank_fields(writer, rank);
  return encode(writer.object);
}

RankDescription decode_rank(const std::string& bytes, uint32_t number) {
  try {
    const Json whole = decode(bytes);
    RankDescription rank;
    Reader reader(number, whole);
    rank_fields(reader, rank);
    return rank;
  } catch (const Json::exception& e) {
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("rank {} sent no description of itself ({}): is it another version?", number, e.what()));
  }
}

}  // namespace tutti::core
