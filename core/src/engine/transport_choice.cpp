// SPDX-License-Identifier: Apache-2.0
#include "engine/transport_choice.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>

#include "bootstrap/failure.hpp"

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

}  // namespace tutti::core
