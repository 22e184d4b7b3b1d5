// SPDX-License-Identifier: Apache-2.0
#include "network.hpp"

#include <fmt/format.h>
#include <tutti/plugin/rails.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <set>
#include <tutti/sized.hpp>

namespace info {
namespace {

using Json = nlohmann::ordered_json;

void take_rail(void* self, const tutti_rail* from) {
  Rail rail{from->name,      from->medium, from->state, from->why, from->chosen != 0,
            from->bandwidth, from->numa,   from->mtu,   {}};
  for (uint64_t i = 0; i < from->n_addresses; ++i) {
    const tutti_rail_address& a = from->addresses[i];
    rail.addresses.push_back({a.text, a.interface, a.kind, a.usable != 0});
  }
  static_cast<std::vector<Rail>*>(self)->push_back(std::move(rail));
}

// Nothing when the transport is no network.
const tutti_rails* rails_of(const tutti_transport& transport) {
  return static_cast<const tutti_rails*>(transport.get_interface(transport.self, TUTTI_RAILS_ID));
}

Network look(const std::string& name) {
  Network network;
  network.transport = name;
  const tutti_transport* transport = tutti::find_transport(name, &network.problem);
  if (!transport) return network;
  const tutti_rails* rails = rails_of(*transport);
  if (!rails) {
    network.problem = "this plugin does not tell of its rails";
  } else if (const tutti::SizeVerdict verdict = tutti::judge_table(rails); verdict.status < 0) {
    network.problem = "its table of rails: " + verdict.text;
  } else {
    const tutti_rail_sink sink{sizeof sink, 0, &network.rails, take_rail};
    if (rails->of_host(transport->self, &sink) < 0) network.problem = tutti::take_plugin_error();
  }
  return network;
}

using Line = std::array<std::string, 7>;

std::string gigabits(uint64_t bandwidth) {
  if (bandwidth == 0) return "-";
  return fmt::format("{:g}", static_cast<double>(bandwidth) * 8e-9);
}

void append(std::string& text, const std::vector<Line>& lines) {
  std::array<size_t, 7> width{};
  for (const Line& line : lines)
    for (size_t i = 0; i + 1 < line.size(); ++i) width[i] = std::max(width[i], line[i].size());
  for (const Line& line : lines) {
    std::string row = "  ";
    for (size_t i = 0; i < line.size(); ++i)
      row += line[i] + std::string(i + 1 < line.size() ? width[i] - line[i].size() + 2 : 0, ' ');
    text += row.substr(0, row.find_last_not_of(' ') + 1) + "\n";
  }
}

}  // namespace

std::string why_left_out(const tutti_transport& transport) {
  tutti_transport_caps caps{};
  caps.struct_size = sizeof caps;
  return tutti::query_transport(transport, &caps) < 0 ? tutti::take_plugin_error() : "";
}

std::vector<Network> find_networks() {
  std::set<std::string> names{"ib", "tcp"};
  for (const tutti_transport* transport : tutti::list_transports())
    if (rails_of(*transport)) names.insert(transport->name);
  std::vector<Network> networks;
  for (const std::string& name : names) networks.push_back(look(name));
  return networks;
}

std::string network_text(const std::vector<Network>& networks) {
  std::string text;
  for (const Network& network : networks) {
    text += (text.empty() ? "" : "\n") + network.transport + "\n";
    if (!network.problem.empty()) text += "  not usable: " + network.problem + "\n";
    if (network.rails.empty()) continue;
    std::vector<Line> lines{{"rail", "state", "medium", "Gbit/s", "NUMA", "MTU", "used"}};
    for (const Rail& r : network.rails) {
      lines.push_back({r.name, r.state, r.medium, gigabits(r.bandwidth), r.numa < 0 ? "-" : std::to_string(r.numa),
                       r.mtu ? std::to_string(r.mtu) : "-", (r.chosen ? "yes: " : "no: ") + r.why});
    }
    append(text, lines);
    text += "  addresses\n";
    std::vector<Line> addresses;
    for (const Rail& r : network.rails)
      for (const RailAddress& a : r.addresses)
        addresses.push_back({"  " + r.name, a.text, a.interface.empty() ? "-" : a.interface, a.kind,
                             a.usable ? "told to peers" : "not used", "", ""});
    append(text, addresses);
  }
  return text;
}

std::string network_json(const std::vector<Network>& networks) {
  Json all = Json::array();
  for (const Network& network : networks) {
    Json rails = Json::array();
    for (const Rail& r : network.rails) {
      Json addresses = Json::array();
      for (const RailAddress& a : r.addresses)
        addresses.push_back({{"address", a.text}, {"interface", a.interface}, {"kind", a.kind}, {"usable", a.usable}});
      rails.push_back({{"name", r.name},
                       {"state", r.state},
                       {"medium", r.medium},
                       {"bytes_per_second", r.bandwidth},
                       {"numa", r.numa},
                       {"mtu", r.mtu},
                       {"chosen", r.chosen},
                       {"why", r.why},
                       {"addresses", std::move(addresses)}});
    }
    all.push_back({{"transport", network.transport}, {"problem", network.problem}, {"rails", std::move(rails)}});
  }
  const Json json{{"program", "tutti-info"}, {"version", tutti_version()}, {"networks", std::move(all)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace info
