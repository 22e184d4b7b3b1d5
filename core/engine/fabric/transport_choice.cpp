// SPDX-License-Identifier: Apache-2.0
#include "engine/fabric/transport_choice.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <tutti/base/name_list.hpp>

#include "base/failure.hpp"
#include "registry/plugin_check.hpp"
#include "registry/registry.hpp"

namespace tutti::core {

TransportChoice choose_transports(const std::string& text) {
  TransportChoice choice{list_transports(), false};
  if (text.empty()) return choice;
  const NameList list = name_list("TUTTI_TRANSPORT", text);
  if (!list.problem.empty()) throw Failure(TUTTI_INVALID_ARGUMENT, list.problem);
  std::vector<const tutti_transport*> listed;
  for (const std::string& name : list.names) {
    std::string error;
    const tutti_transport* transport = find_transport(name, &error);
    if (!transport) throw Failure(TUTTI_NOT_FOUND, fmt::format("TUTTI_TRANSPORT=\"{}\": {}", text, error));
    listed.push_back(transport);
  }
  if (!list.excludes) return {listed, true};
  std::erase_if(choice.transports, [&](const tutti_transport* transport) {
    return std::find(listed.begin(), listed.end(), transport) != listed.end();
  });
  return choice;
}

namespace {

const tutti_wrapper& wrapper_of(const std::string& plugin) {
  const auto* wrapper = static_cast<const tutti_wrapper*>(registry_interface(plugin.c_str(), TUTTI_WRAPPER_ID));
  if (!wrapper) {
    std::string known;
    for (const PluginRecord& record : list_plugins())
      if (record.loaded && registry_interface(record.id.c_str(), TUTTI_WRAPPER_ID))
        known += (known.empty() ? "" : ", ") + record.id;
    throw Failure(TUTTI_NOT_FOUND,
                  fmt::format("TUTTI_WRAP: there is no plugin \"{}\" with {}, or it was refused; there are: {}. "
                              "tutti-info lists the plugins and why",
                              plugin, TUTTI_WRAPPER_ID, known.empty() ? "none" : known));
  }
  if (const std::string reason = check_interface(wrapper); !reason.empty())
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("TUTTI_WRAP: the plugin {}: {}", plugin, reason));
  return *wrapper;
}

}  // namespace

std::vector<std::string> choose_wrappers(const std::string& text) {
  if (text.empty()) return {};
  const NameList list = name_list("TUTTI_WRAP", text);
  if (!list.problem.empty()) throw Failure(TUTTI_INVALID_ARGUMENT, list.problem);
  if (list.excludes)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  fmt::format("TUTTI_WRAP=\"{}\": expected a list of plugins, the innermost first, without ^", text));
  for (const std::string& name : list.names) wrapper_of(name);
  return list.names;
}

const tutti_transport* wrapped(const tutti_transport* inner, const std::string& plugin) {
  const tutti_wrapper& wrapper = wrapper_of(plugin);
  const tutti_transport* outer = nullptr;
  if (const tutti_status status = wrapper.wrap(wrapper.self, inner, &outer); status < 0)
    throw Failure(status, fmt::format("{} over {}: {}", plugin, inner->name, take_plugin_error()));
  if (const std::string reason = check_interface(outer); !reason.empty())
    throw Failure(TUTTI_NOT_SUPPORTED, fmt::format("TUTTI_WRAP: the plugin {}: {}", plugin, reason));
  return outer;
}

}  // namespace tutti::core
