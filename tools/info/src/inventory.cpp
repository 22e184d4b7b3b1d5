// SPDX-License-Identifier: Apache-2.0
#include "inventory.hpp"

#include <fmt/format.h>
#include <tutti/tutti.h>

#include <nlohmann/json.hpp>

#include "network.hpp"
#include "texts/texts.hpp"

namespace info {
namespace {

using Json = nlohmann::ordered_json;

// "0: id 2f..., PCI 0000:3b:00.0, NUMA node 0"
std::string text_of_device(const tutti_device& memory, uint32_t device) {
  std::string text = fmt::format("{}: ", device);
  uint8_t id[16] = {};
  if (TUTTI_HAS(tutti_device, &memory, identify) && memory.identify(memory.self, device, id) == TUTTI_OK)
    text += fmt::format("id {:02x}", fmt::join(id, ""));
  else
    text += std::string("id not known: ") + tutti::take_plugin_error();
  tutti_device_facts facts{};
  facts.struct_size = sizeof facts;
  if (!TUTTI_HAS(tutti_device, &memory, describe)) return text;
  if (memory.describe(memory.self, device, &facts) < 0) return text + ", " + tutti::take_plugin_error();
  if (facts.pci) text += fmt::format(", PCI {}", facts.pci);
  if (facts.numa >= 0) text += fmt::format(", NUMA node {}", facts.numa);
  return text;
}

// "cuda: 2" and a line for each, or why it does not work here.
std::string state_of_device(const std::string& name) {
  for (const tutti::DeviceTables& tables : tutti::list_devices()) {
    if (name != tables.memory->name) continue;
    tutti_device_caps caps{};
    caps.struct_size = sizeof caps;
    if (tables.memory->query(tables.memory->self, &caps) < 0)
      return name + ": none here: " + tutti::take_plugin_error();
    std::string text = name + ": " + std::to_string(caps.devices);
    for (uint32_t k = 0; k < caps.devices; ++k) text += "\n                  " + text_of_device(*tables.memory, k);
    return text;
  }
  return name;
}

// Why the transport of that name cannot serve here; "": it can.
std::string reason_of(const std::string& name) {
  std::string ignored;
  const tutti_transport* const transport = tutti::find_transport(name, &ignored);
  return transport ? why_left_out(*transport) : "";
}

std::string plugin_text(const tutti::PluginRecord& plugin) {
  if (!plugin.loaded)
    return fmt::format("  REFUSED {}{}\n    {}\n", plugin.path,
                       plugin.required ? " (named by TUTTI_PLUGIN_PATH)" : "", plugin.reason);
  std::string text = fmt::format("  {} {}: {}\n", plugin.id, plugin.version, plugin.summary);
  for (const std::string& transport : plugin.transports) {
    const std::string why = reason_of(transport);
    text += fmt::format("    transport   {}{}\n", transport, why.empty() ? "" : ": left out here: " + why);
  }
  if (!plugin.algorithms.empty()) text += fmt::format("    algorithms  {}\n", fmt::join(plugin.algorithms, " "));
  for (const std::string& other : plugin.others) text += fmt::format("    interface   {}\n", other);
  for (const std::string& device : plugin.devices) text += fmt::format("    device      {}\n", state_of_device(device));
  return text + fmt::format("    from        {} ({}, {})\n", plugin.path, plugin.vendor, plugin.license);
}

std::string host_text(const HostFacts& host) {
  std::string text = fmt::format("  name       {}\n  key        {} ({})\n", host.name, host.key, host.key_source);
  if (!host.processor.empty()) text += fmt::format("  processor  {}\n", host.processor);
  text += fmt::format("  cores      {}, usable by this process {}\n", host.online_cores, host.usable_cores);
  for (const Cache& cache : host.caches)
    text += fmt::format("  cache      {} {}, shared by CPUs {}\n", cache.name, cache.size, cache.shared);
  return text + fmt::format("  memory     {} MiB\n", host.memory_bytes >> 20);
}

Json plugin_json(const tutti::PluginRecord& plugin) {
  Json left_out = Json::object();
  for (const std::string& transport : plugin.transports)
    if (const std::string why = reason_of(transport); !why.empty()) left_out[transport] = why;
  return {{"path", plugin.path},
          {"loaded", plugin.loaded},
          {"required", plugin.required},
          {"reason", plugin.reason},
          {"id", plugin.id},
          {"version", plugin.version},
          {"vendor", plugin.vendor},
          {"license", plugin.license},
          {"summary", plugin.summary},
          {"transports", plugin.transports},
          {"left_out", left_out},
          {"algorithms", plugin.algorithms},
          {"devices", plugin.devices},
          {"others", plugin.others}};
}

Json host_json(const HostFacts& host) {
  Json json{{"name", host.name},
            {"key", host.key},
            {"key_source", host.key_source},
            {"processor", host.processor},
            {"online_cores", host.online_cores},
            {"usable_cores", host.usable_cores},
            {"memory_bytes", host.memory_bytes},
            {"caches", Json::array()}};
  for (const Cache& cache : host.caches)
    json["caches"].push_back({{"name", cache.name}, {"size", cache.size}, {"shared_cpus", cache.shared}});
  return json;
}

Json lines_json(const std::string& text) {
  return Json(texts::split(text, '\n'));
}

}  // namespace

std::string inventory_text(const Inventory& inventory) {
  std::string text = fmt::format("Tutti {}, plugin ABI {}.{}\n\nPlugins\n", tutti_version(), TUTTI_ABI_MAJOR,
                                 TUTTI_ABI_MINOR);
  for (const tutti::PluginRecord& plugin : inventory.plugins) text += plugin_text(plugin);
  if (inventory.plugins.empty()) text += "  none was found (TUTTI_PLUGIN_PATH, and lib/tutti beside the library)\n";
  text += "\nHost\n" + host_text(inventory.host) + "\nSettings\n";
  for (const auto& [name, value] : inventory.settings) text += fmt::format("  {}={}\n", name, value);
  for (const std::string& sentence : inventory.unknown_settings) text += fmt::format("  unknown: {}\n", sentence);
  return text + (inventory.settings.empty() ? "  no TUTTI_ variable is set\n" : "");
}

std::string answer_text(const Answer& answer) {
  std::string text;
  if (answer.assumed)
    text =
        "for " + std::to_string(answer.nranks) + " ranks, one for each processor of this host; -n N asks for others\n";
  for (const std::string& part : {answer.topology, answer.explanation}) {
    if (part.empty()) continue;
    text += (text.empty() ? "" : "\n") + part;
    if (text.back() != '\n') text += '\n';
  }
  return text;
}

std::string json_text(const std::optional<Inventory>& inventory, const std::optional<Answer>& answer) {
  Json json{{"program", "tutti-info"},
            {"version", tutti_version()},
            {"abi", {{"major", TUTTI_ABI_MAJOR}, {"minor", TUTTI_ABI_MINOR}}}};
  if (inventory) {
    json["plugins"] = Json::array();
    for (const tutti::PluginRecord& plugin : inventory->plugins) json["plugins"].push_back(plugin_json(plugin));
    json["host"] = host_json(inventory->host);
    json["settings"] = Json::object();
    for (const auto& [name, value] : inventory->settings) json["settings"][name] = value;
    json["unknown_settings"] = inventory->unknown_settings;
  }
  if (answer) {
    json["nranks"] = answer->nranks;
    if (!answer->topology.empty()) json["topology"] = lines_json(answer->topology);
    if (!answer->explanation.empty()) json["explanation"] = lines_json(answer->explanation);
  }
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace info
