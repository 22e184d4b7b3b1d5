// SPDX-License-Identifier: Apache-2.0
#include "network_file.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <functional>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "quantity.hpp"
#include "request.hpp"

namespace tutti::plan {
namespace {
using nlohmann::json;

// One object of the file. Every key that is asked for is known; finish() refuses the others.
class Object {
 public:
  Object(std::string file, std::string place, const json& value)
      : file_(std::move(file)), place_(std::move(place)), value_(value) {
    if (!value.is_object()) wrong(place_, "an object, {...}", value);
  }

  bool has(const char* key) { return known_.insert(key), value_.contains(key); }

  std::string text(const char* key, const char* expected) {
    const json& value = required(key, expected);
    if (!value.is_string()) wrong(at(key), expected, value);
    return value.get<std::string>();
  }
  uint32_t count(const char* key, uint32_t missing, uint32_t most = 1u << 20) {
    if (!has(key) && missing) return missing;
    const std::string expected = fmt::format("a whole number from 1 to {}", most);
    const json& value = required(key, expected.c_str());
    if (!value.is_number_integer() || value < 1 || value > most) wrong(at(key), expected, value);
    return value.get<uint32_t>();
  }
  double number(const char* key, double missing, double least) {
    if (!has(key)) return missing;
    const json& value = value_[key];
    const std::string expected = fmt::format("a number, at least {}", least);
    if (!value.is_number() || value < least || !std::isfinite(value.get<double>())) wrong(at(key), expected, value);
    return value.get<double>();
  }
  double seconds(const char* key, double missing) {
    return quantity(key, missing, true, "a time of at least 0: a number of seconds, or a text such as \"1.5 us\"",
                    parse_seconds);
  }
  double bandwidth(const char* key, double missing) {
    return quantity(key, missing, false,
                    "a bandwidth above 0: a number of bytes per second, or a text such as \"25 GB/s\" or "
                    "\"200 Gbit/s\"",
                    parse_bandwidth);
  }
  uint64_t bytes(const char* key, uint64_t missing) {
    const auto parsed = [](const std::string& text) -> std::optional<double> {
      const std::optional<uint64_t> bytes = parse_bytes(text);
      return bytes ? std::optional<double>(double(*bytes)) : std::nullopt;
    };
    return uint64_t(quantity(key, double(missing), true, "a number of bytes, or a text such as \"64 KiB\"", parsed));
  }
  simulation::Fabric::Link link(const char* key) {
    Object link(file_, at(key), required(key, "an object with a latency and a bandwidth"));
    const simulation::Fabric::Link made{link.seconds("latency", 0), link.bandwidth("bandwidth", -1)};
    link.finish();
    return made;
  }
  // Calls read(Object&) for each object of a list.
  void list(const char* key, const std::function<void(Object&)>& read) {
    const json& value = required(key, "a list of objects, [{...}, ...]");
    if (!value.is_array() || value.empty()) wrong(at(key), "a list of objects, [{...}, ...]", value);
    for (size_t i = 0; i < value.size(); ++i) {
      Object item(file_, fmt::format("{}[{}]", at(key), i), value[i]);
      read(item);
      item.finish();
    }
  }

  void finish() {
    for (const auto& [key, value] : value_.items()) {
      if (known_.contains(key)) continue;
      std::string names;
      for (const std::string& name : known_) names += (names.empty() ? "" : ", ") + name;
      throw WrongRequest(fmt::format("{}: unknown key {}; known {} are {}", file_, at(key.c_str()),
                                     place_.empty() ? "here" : "in " + place_, names));
    }
  }
  [[noreturn]] void wrong(const std::string& where, const std::string& expected, const json& got) const {
    throw WrongRequest(fmt::format("{}: {}: expected {}, got {}", file_, where.empty() ? "the whole" : where, expected,
                                   got.dump().substr(0, 80)));
  }
  std::string at(const char* key) const { return place_.empty() ? key : place_ + "." + key; }

 private:
  const json& required(const char* key, const char* expected) {
    if (!has(key)) throw WrongRequest(fmt::format("{}: {} is missing: expected {}", file_, at(key), expected));
    return value_[key];
  }
  // A negative `missing`: it must be there.
  double quantity(const char* key, double missing, bool zero, const char* expected,
                  const std::function<std::optional<double>(const std::string&)>& parse) {
    if (!has(key) && missing >= 0) return missing;
    const json& value = required(key, expected);
    std::optional<double> number;
    if (value.is_number()) number = value.get<double>();
    if (value.is_string()) number = parse(value.get<std::string>());
    if (!number || *number < 0 || (*number == 0 && !zero) || !std::isfinite(*number)) wrong(at(key), expected, value);
    return *number;
  }

  std::string file_, place_;
  const json& value_;
  std::set<std::string> known_;
};

// A route must hold the links up and down.
constexpr size_t most_levels = simulation::Route::most_hops / 2;

uint32_t read_fat_tree(Object& file, simulation::Fabric& fabric) {
  uint64_t hosts = 1;
  file.list("levels", [&](Object& level) {
    if (fabric.levels.size() == most_levels)
      throw WrongRequest(fmt::format("{}: more levels than the limit of {}", file.at("levels"), most_levels));
    fabric.levels.push_back(
        {level.count("down", 0), level.number("oversubscription", 1, 0.01), level.seconds("latency", 0)});
    hosts = std::min<uint64_t>(hosts * fabric.levels.back().down, UINT32_MAX);
  });
  return uint32_t(hosts);
}

void read_dragonfly(Object& file, simulation::Fabric& fabric) {
  fabric.hosts_per_router = file.count("hosts_per_router", 0);
  fabric.routers_per_group = file.count("routers_per_group", 0, 4096);
  fabric.links_per_pair = file.count("links_per_pair", 1);
  fabric.local = file.link("local");
  fabric.global = file.link("global");
}

void read_hosts(Object& file, NetworkFile& network) {
  using Kind = simulation::Fabric::Kind;
  simulation::Fabric& fabric = network.fabric;
  const bool islands = network.kind == "islands";
  fabric.ranks_per_host = file.count("ranks_per_host", islands ? 0 : 1, 65536);
  fabric.nics = file.count("nics_per_host", 1, 65536);
  if (fabric.nics > fabric.ranks_per_host)
    throw WrongRequest(
        fmt::format("{}: nics_per_host: expected at most ranks_per_host, {}, since a rank uses one; got {}",
                    network.path, fabric.ranks_per_host, fabric.nics));
  if (file.has("placement")) {
    const std::string placement = file.text("placement", "\"block\" or \"cyclic\"");
    if (placement != "block" && placement != "cyclic") file.wrong("placement", "\"block\" or \"cyclic\"", placement);
    fabric.cyclic = placement == "cyclic";
  }
  fabric.nic = file.link("nic");
  if (fabric.ranks_per_host > 1 || file.has("inside")) fabric.inside = file.link("inside");
  network.most_hosts = file.has("hosts") ? file.count("hosts", 0) : 0;
  if (fabric.kind == Kind::fat_tree) {
    const uint32_t room = read_fat_tree(file, fabric);
    if (network.most_hosts > room)
      throw WrongRequest(
          fmt::format("{}: hosts: the levels join {} hosts, got {}", network.path, room, network.most_hosts));
    if (!network.most_hosts) network.most_hosts = room;
  }
  if (fabric.kind == Kind::dragonfly) read_dragonfly(file, fabric);
}

}  // namespace

simulation::Fabric NetworkFile::fabric_of(uint32_t nranks) const {
  simulation::Fabric made = fabric;
  made.nranks = nranks;
  if (most_hosts && made.hosts() > most_hosts)
    throw WrongRequest(fmt::format(
        "{}: {} ranks need {} hosts of {}, the network has {}: ask for at most {} ranks, or "
        "describe more hosts",
        path, nranks, made.hosts(), made.ranks_per_host, most_hosts, uint64_t{most_hosts} * made.ranks_per_host));
  return made;
}

std::vector<uint32_t> NetworkFile::hosts_of(const simulation::Fabric& fabric) {
  std::vector<uint32_t> hosts(fabric.nranks);
  for (uint32_t rank = 0; rank < fabric.nranks; ++rank) hosts[rank] = fabric.host_of(rank);
  return hosts;
}

NetworkFile read_network(const std::string& path) {
  const std::string text = text_of_file(path, "network");
  NetworkFile network;
  network.path = path;
  json value;
  try {
    value = json::parse(text);
  } catch (const json::parse_error& error) {
    throw WrongRequest(fmt::format("{}: not JSON: {}", path, error.what()));
  }
  Object file(path, "", value);
  const char* const kinds = "\"switch\", \"fat_tree\", \"dragonfly\" or \"islands\"";
  network.kind = file.text("network", kinds);
  using Kind = simulation::Fabric::Kind;
  const std::pair<const char*, Kind> known[] = {{"switch", Kind::single_switch},
                                                {"islands", Kind::single_switch},
                                                {"fat_tree", Kind::fat_tree},
                                                {"dragonfly", Kind::dragonfly}};
  const auto kind = std::ranges::find(known, network.kind, [](const auto& k) { return std::string(k.first); });
  if (kind == std::end(known)) file.wrong("network", kinds, network.kind);
  network.fabric.kind = kind->second;
  read_hosts(file, network);
  simulation::Processor& processor = network.processor;
  processor.message = file.seconds("message_overhead", 0);
  const double reduction = file.bandwidth("reduction", std::numeric_limits<double>::infinity());
  const double copy = file.bandwidth("copy", std::numeric_limits<double>::infinity());
  processor.reduce_per_byte = 1 / reduction;
  processor.copy_per_byte = 1 / copy;
  processor.fragment = file.bytes("fragment", 64 << 10);
  if (file.has("comment")) file.text("comment", "a text");
  file.finish();
  return network;
}

}  // namespace tutti::plan
