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
#include <optional>
#include <random>
#include <set>
#include <string_view>
#include <thread>

#include "bootstrap/failure.hpp"
#include "choose/tuning.hpp"
#include "fabric/numa.hpp"
#include "plugins/host.hpp"
#include "plugins/registry.hpp"
#include "plugins/settings.hpp"

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
template <typename Side, typename LeftOut>
void left_out_fields(Side& side, LeftOut& out) {
  side.text("name", out.name);
  side.reason("why", out.why);
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
  side.number("place", rank.place);
  side.reason("apart", rank.apart);
  side.number("process", rank.process);
  side.number("instance", rank.instance);
  side.number("cores", rank.cores, 1, 1u << 20);
  side.processors("processors", rank.processors, rank.cores);
  side.node("numa", rank.numa);
  side.device("device", rank.device);
  side.list("transports", rank.transports);
  side.list("left out", rank.left_out);
}

constexpr size_t longest_text = 256;
// Texts are printed, and a terminal would obey these.
bool is_control(char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; }

class Writer {
 public:
  template <typename Number>
  void number(const char* key, Number value, uint64_t = 0, uint64_t = 0) {
    object[key] = value;
  }
  void node(const char* key, int32_t node) { object[key] = node + 1; }  // 0: not known
  void text(const char* key, const std::string& value) { object[key] = value; }
  // Cut to the length that a reader takes. Single bytes only, so that no character is cut in two.
  void reason(const char* key, std::string words) {
    std::ranges::replace_if(words, [](char c) { return is_control(c) || static_cast<unsigned char>(c) > 126; }, '?');
    object[key] = words.substr(0, longest_text);
  }
  // In hexadecimal digits, processor 0 in the last one.
  void processors(const char* key, const Processors& value, uint32_t) {
    std::string digits;
    for (size_t digit = value.size() / 4; digit-- > 0;) {
      const auto four = ((value >> (4 * digit)) & Processors(15)).to_ulong();
      if (four || !digits.empty()) digits += "0123456789abcdef"[four];
    }
    object[key] = digits;
  }
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
  void list(const char* key, const std::vector<TransportLeftOut>& all) {
    object[key] = Json::array();
    for (const TransportLeftOut& out : all) {
      Writer inner;
      left_out_fields(inner, out);
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
    if (!said.is_number_unsigned() || said.get<uint64_t>() < least || said.get<uint64_t>() > most)
      refuse(key, fmt::format("a whole number from {} to {}", least, most), said);
    value = static_cast<Number>(said.get<uint64_t>());
  }
  void node(const char* key, int32_t& node) const {
    constexpr uint32_t most_nodes = 1 << 16;
    uint32_t code = 0;
    number(key, code, 0, most_nodes);
    node = static_cast<int32_t>(code) - 1;
  }
  void text(const char* key, std::string& value) const { value = printable(key, object_.at(key)); }
  void reason(const char* key, std::string& words) const { text(key, words); }
  void processors(const char* key, Processors& value, uint32_t cores) const {
    const std::string digits = printable(key, object_.at(key));  // at most 256
    value.reset();
    for (const char digit : digits) {
      const size_t four = std::string_view("0123456789abcdef").find(digit);
      if (four == std::string_view::npos) refuse(key, "hexadecimal digits, a bit for each processor", digits);
      value = value << 4 | Processors(four);
    }
    if (value.any() && value.count() != cores)
      refuse(key, fmt::format("as many processors as \"cores\", {}", cores), digits);
  }
  void device(const char* key, DeviceDescription& device) const {
    if (object_.at(key).is_null()) return;
    Reader inner(rank_, object_.at(key));
    device_fields(inner, device);
    if (device.kind.empty()) refuse("kind", "a text that is not empty", "");
  }
  void list(const char* key, std::vector<std::string>& texts) const {
    for (const Json& text : array(key)) texts.push_back(printable(key, text));
  }
  void list(const char* key, std::vector<TransportOffer>& offers) const {
    for (const Json& one : array(key)) {
      Reader inner(rank_, one);
      offer_fields(inner, offers.emplace_back());
      const auto same = [&](const TransportOffer& other) { return other.name == offers.back().name; };
      if (std::ranges::count_if(offers, same) > 1) refuse(key, "transports of different names", offers.back().name);
    }
  }
  void list(const char* key, std::vector<TransportLeftOut>& all) const {
    for (const Json& one : array(key)) {
      Reader inner(rank_, one);
      left_out_fields(inner, all.emplace_back());
    }
  }

 private:
  [[noreturn]] void refuse(const char* key, const std::string& expected, const Json& got) const {
    throw Failure(TUTTI_MISMATCH,
                  fmt::format("rank {} describes itself with an impossible \"{}\": expected {}, got {}", rank_, key,
                              expected, got.dump(-1, ' ', true, Json::error_handler_t::replace).substr(0, 80)));
  }
  const Json& array(const char* key) const {
    constexpr size_t most = 64;
    const Json& said = object_.at(key);
    if (!said.is_array() || said.size() > most) refuse(key, fmt::format("a list of at most {}", most), said);
    return said;
  }
  std::string printable(const char* key, const Json& said) const {
    const auto fits = [](const std::string& text) {
      return text.size() <= longest_text && std::ranges::none_of(text, is_control);
    };
    if (!said.is_string() || !fits(said.get<std::string>()))
      refuse(key, fmt::format("a text of at most {} bytes without control characters", longest_text), said);
    return said.get<std::string>();
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
