// SPDX-License-Identifier: Apache-2.0
#include "fabric/transport_choice.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>

#include "bootstrap/failure.hpp"
#include "plugins/plugin_check.hpp"
#include "plugins/registry.hpp"

namespace tutti::core {

TransportChoice choose_transports(const std::string& text) {
  TransportChoice choice{list_transports(), false};
  if (text.empty()) return choice;
  const bool denies = text.front() == '^';
  std::vector<const tutti_transport*> listed;
  for (size_t begin = denies; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    const std::string name = text.substr(begin, end - begin);
    begin = end + 1;
    std::string error;
    const tutti_transport* transport = find_transport(name, &error);
    if (name.empty() || !transport)
      throw Failure(
          name.empty() ? TUTTI_INVALID_ARGUMENT : TUTTI_NOT_FOUND,
          fmt::format("TUTTI_TRANSPORT=\"{}\": expected names with commas between them, or ^ and names that shall "
                      "not be used: {}",
                      text, error));
    if (std::find(listed.begin(), listed.end(), transport) != listed.end())
      throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("TUTTI_TRANSPORT=\"{}\" names {} twice", text, name));
    listed.push_back(transport);
  }
  if (!denies) return {listed, true};
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
