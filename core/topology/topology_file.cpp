// SPDX-License-Identifier: Apache-2.0
#include "topology/topology_file.hpp"

#include <fmt/format.h>
#include <tutti/plugin/transport.h>

#include <stdexcept>

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

// The code of a NUMA node between ranks is its number + 1; 0 where it is not known, as null is here.
void encode_node(Json& object, const std::string& where) {
  Json& node = object["numa"];
  if (!node.is_null() && (!node.is_number_unsigned() || node > 65535))
    wrong_json(where + ".numa", "a node's number or null", node);
  node = node.is_null() ? 0u : node.get<uint64_t>() + 1;
}
void decode_node(Json& object) {
  Json& node = object["numa"];
  node = node == 0 ? Json() : Json(node.get<uint64_t>() - 1);
}

// An object of the file as what the rank would tell.
void encode_rank(Json& rank, const std::string& where) {
  complete_json(rank, where,
                {{"processors", ""},
                 {"numa", nullptr},
                 {"device", nullptr},
                 {"instance", 0u},
                 {"place", 0u},
                 {"apart", ""},
                 {"left out", Json::array()}},
                {"host", "process", "cores", "transports"});
  encode_node(rank, where);
  if (Json& device = rank["device"]; !device.is_null()) {
    complete_json(device, where + ".device",
                  {{"id", ""}, {"pci", ""}, {"numa", nullptr}, {"latency", 0u}, {"bandwidth", 0u}, {"copies", 0u}},
                  {"kind", "index"});
    encode_node(device, where + ".device");
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
}
void decode_rank(Json& rank) {
  decode_node(rank);
  rank.erase("apart");
  rank.erase("left out");
  if (!rank["device"].is_null()) decode_node(rank["device"]);
  for (Json& offer : rank["transports"])
    for (const auto& [code, word] : reaches)
      if (offer["reach"] == code) offer["reach"] = word;
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
  for (uint32_t r = 0; r < topology.nranks(); ++r) {
    Json rank = Json::parse(encode(topology.rank(r)));
    decode_rank(rank);
    text += (r ? ",\n" : "\n") + rank.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
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
  for (Json& rank : ranks) {
    encode_rank(rank, fmt::format("rank {}", all.size()));
    all.push_back(core::decode_rank(rank.dump(-1, ' ', false, Json::error_handler_t::replace), uint32_t(all.size())));
  }
  return all;
}

}  // namespace tutti::core
