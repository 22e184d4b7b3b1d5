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

const tutti_transport* with_checksums(const tutti_transport* inner) {
  const auto* wrapper = static_cast<const tutti_wrapper*>(registry_interface("checksum", TUTTI_WRAPPER_ID));
  if (!wrapper)
    throw Failure(TUTTI_NOT_FOUND,
                  "TUTTI_CHECKSUM=1 needs the plugin checksum (libtutti-checksum.so), which was not found, or was "
                  "refused: tutti-info lists the plugins and why");
  if (const std::string reason = check_interface(wrapper); !reason.empty())
    throw Failure(TUTTI_NOT_SUPPORTED, "TUTTI_CHECKSUM=1: the plugin checksum: " + reason);
  const tutti_transport* outer = nullptr;
  if (const tutti_status status = wrapper->wrap(wrapper->self, inner, &outer); status < 0)
    throw Failure(status, fmt::format("checksums over {}: {}", inner->name, take_plugin_error()));
  if (const std::string reason = check_interface(outer); !reason.empty())
    throw Failure(TUTTI_NOT_SUPPORTED, "TUTTI_CHECKSUM=1: the plugin checksum: " + reason);
  return outer;
}

}  // namespace tutti::core
