// SPDX-License-Identifier: Apache-2.0
#include "topology/topology_file.hpp"

#include <fmt/format.h>
#include <tutti/plugin/transport.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "topology/json_file.hpp"
#include "topology/rank_description.hpp"

namespace tutti::core {
namespace {

constexpr const char* mark = "tutti_topology";
constexpr int format = 1;
constexpr size_t most_ranks = 65536;
constexpr std::pair<uint32_t, const char*> reaches[] = {{TUTTI_REACH_PROCESS, "process"},
                                                        {TUTTI_REACH_HOST, "host"},
                                                        {TUTTI_REACH_FABRIC, "fabric"},
                                                        {TUTTI_REACH_NETWORK, "network"}};

uint32_t count_of(const Json& object, const std::string& where) {
  if (!object.contains("count")) return 1;
  const Json& count = object.at("count");
  if (!count.is_number_unsigned() || count < 1 || count > most_ranks)
    wrong_json(where + ".count", fmt::format("a whole number from 1 to {}", most_ranks), count);
  return count.get<uint32_t>();
}

// The sides of RankDescription::fields. The number of a NUMA node, the only one with a sign, is null where it is -1.
class JsonWriter {
 public:
  void operator()(const auto&... fields) { ((object[fields.name] = json(fields.value)), ...); }
  Json object;

 private:
  template <typename T>
  static Json json(const T& value) {
    if constexpr (std::is_same_v<T, int32_t>)
      return value < 0 ? Json() : Json(value);
    else if constexpr (TravelsBy<T, JsonWriter>) {
      JsonWriter inner;
      T::fields(inner, value);
      return inner.object;
    } else
      return value;
  }
  template <typename Element>
  static Json json(const std::vector<Element>& values) {
    Json list = Json::array();
    for (const Element& value : values) list.push_back(json(value));
    return list;
  }
};

class JsonReader {
 public:
  JsonReader(std::string where, const Json& object) : where_(std::move(where)), object_(object) {}
  void operator()(auto&&... fields) { (read(fields, at(fields.name), path_of(fields.name)), ...); }
  [[noreturn]] void refuse(const char* name, const std::string& expected, const std::string& got) const {
    wrong_json(path_of(name), expected, got);
  }

 private:
  std::string path_of(const char* name) const { return where_ + "." + name; }
  const Json& at(const char* name) const {
    if (!object_.is_object() || !object_.contains(name))
      wrong_json(where_, fmt::format("an object with \"{}\"", name), object_);
    return object_.at(name);
  }
  template <typename T>
  static void read(Field<T>& field, const Json& said, const std::string& place) {
    if constexpr (TravelsBy<T, JsonReader>) {
      JsonReader inner(place, said);
      T::fields(inner, field.value);
    } else if constexpr (Field<T>::is_text) {
      if (!said.is_string() || !field.fits(said.get<std::string>())) wrong_json(place, field.expected(), said);
      field.value = said.get<std::string>();
    } else {
      constexpr bool is_node = std::is_signed_v<T>;
      if (is_node && said.is_null()) return;
      const uint64_t number = said.is_number_unsigned() ? said.get<uint64_t>() : 0;
      if (!said.is_number_unsigned() || !std::in_range<T>(number) || !field.fits(static_cast<T>(number)))
        wrong_json(place, is_node ? "a node's number or null" : field.expected(), said);
      field.value = static_cast<T>(number);
    }
  }
  template <typename Element>
  static void read(Field<std::vector<Element>>& list, const Json& said, const std::string& place) {
    if (!said.is_array() || said.size() > list.most) wrong_json(place, list.expected(), said);
    for (size_t i = 0; const Json& one : said) {
      Field element(list.name, list.value.emplace_back());
      read(element, one, fmt::format("{}[{}]", place, i++));
    }
  }

  const std::string where_;
  const Json& object_;
};

RankDescription read_rank(Json rank, const std::string& where) {
  complete_json(rank, where,
                {{"processors", ""},
                 {"numa", nullptr},
                 {"device", nullptr},
                 {"instance", 0u},
                 {"place", 0u},
                 {"apart", ""},
                 {"left out", Json::array()}},
                {"host", "process", "cores", "transports"});
  if (Json& device = rank["device"]; device.is_null()) {
    device = {{"kind", ""}};
  } else {
    complete_json(device, where + ".device",
                  {{"id", ""}, {"pci", ""}, {"numa", nullptr}, {"latency", 0u}, {"bandwidth", 0u}, {"copies", 0u}},
                  {"kind", "index"});
    if (device["kind"] == "") wrong_json(where + ".device.kind", "a text that is not empty", device["kind"]);
  }
  json_list(rank, where, "transports");
  for (size_t i = 0; i < rank["transports"].size(); ++i) {
    Json& offer = rank["transports"][i];
    const std::string place = fmt::format("{}.transports[{}]", where, i);
    complete_json(offer, place,
                  {{"version", ""}, {"fabric", ""}, {"maps", 0u}, {"rails", Json::array()}, {"fragment", 65536u}},
                  {"name", "reach", "latency", "bandwidth"});
    const auto known = std::ranges::find_if(reaches, [&](const auto& reach) { return offer["reach"] == reach.second; });
    if (known == std::end(reaches))
      wrong_json(place + ".reach", "\"process\", \"host\", \"fabric\" or \"network\"", offer["reach"]);
    offer["reach"] = known->first;
    if (offer["bandwidth"] == 0u) wrong_json(place + ".bandwidth", "bytes per second, at least 1", offer["bandwidth"]);
  }
  RankDescription read;
  JsonReader reader(where, rank);
  RankDescription::fields(reader, read);
  return read;
}

Json write_rank(const RankDescription& rank) {
  JsonWriter writer;
  RankDescription::fields(writer, rank);
  writer.object.erase("apart");
  writer.object.erase("left out");
  if (rank.device.kind.empty()) writer.object["device"] = nullptr;
  for (Json& offer : writer.object["transports"])
    for (const auto& [code, word] : reaches)
      if (offer["reach"] == code) offer["reach"] = word;
  return writer.object;
}

// Hosts of a kind: each has the same ranks, and each rank of a list stands for `count` processes.
void expand(const Json& host, const std::string& where, std::vector<Json>& ranks) {
  if (!host.is_object() || !host.contains("name") || !host.at("name").is_string())
    wrong_json(where, "an object with a name", host);
  const uint32_t hosts = count_of(host, where);
  for (uint32_t h = 0; h < hosts; ++h)
    for (size_t i = 0; const Json& listed : json_list(host, where, "ranks")) {
      const std::string place = fmt::format("{}.ranks[{}]", where, i++);
      if (!listed.is_object()) wrong_json(place, "an object, {...}", listed);
      for (uint32_t k = 0; k < count_of(listed, place); ++k) {
        if (ranks.size() == most_ranks)
          throw std::runtime_error(fmt::format("{}: more ranks than the limit of {}", place, most_ranks));
        Json& rank = ranks.emplace_back(listed);
        rank.erase("count");
        rank["host"] = host.at("name").get<std::string>() + (hosts > 1 ? fmt::format("-{}", h) : "");
        rank["process"] = ranks.size();
      }
    }
}

}  // namespace

std::string topology_file(const Topology& topology) {
  std::string text = fmt::format("{{\"{}\": {}, \"ranks\": [", mark, format);
  for (uint32_t r = 0; r < topology.nranks(); ++r)
    text += (r ? ",\n" : "\n") + write_rank(topology.rank(r)).dump(-1, ' ', false, Json::error_handler_t::replace);
  return text + "\n]}\n";
}

std::vector<RankDescription> read_topology_file(const std::string& text) {
  const Json file = parse_json(text, mark, format);
  std::vector<Json> ranks;
  if (file.contains("hosts")) {
    for (size_t i = 0; const Json& host : json_list(file, "", "hosts"))
      expand(host, fmt::format("hosts[{}]", i++), ranks);
  } else {
    const Json& list = json_list(file, "", "ranks");
    ranks.assign(list.begin(), list.end());
    if (ranks.size() > most_ranks)
      throw std::runtime_error(fmt::format("{} ranks: the limit is {}", ranks.size(), most_ranks));
  }
  std::vector<RankDescription> all;
  for (Json& rank : ranks) all.push_back(read_rank(std::move(rank), fmt::format("rank {}", all.size())));
  return all;
}

}  // namespace tutti::core
