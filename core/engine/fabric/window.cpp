// SPDX-License-Identifier: Apache-2.0
//
// Host memory of windows, and the transports.
#include "engine/fabric/window.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>

#include "engine/fabric/fabric.hpp"

namespace tutti::core {

std::string Fabric::register_window(tutti_window& window) {
  std::string why;
  window.registrations.assign(ports_.size(), {});
  window.owned.assign(ports_.size(), false);
  for (Port& port : ports_)
    if (std::ranges::any_of(links_, [&](const Link& link) { return link.port == &port; }))
      register_window(window, port, why);
  windows_.push_back(&window);
  return why;
}

// With one transport.
void Fabric::register_window(tutti_window& window, Port& port, std::string& why) {
  Registration& made = window.registrations[port.index];
  if (made.region) return;
  made = Memory::process().find(*port.domain, window.address, window.bytes);
  if (made.region) return;
  const tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, window.address, window.bytes, -1, 0, 0};
  if (!TUTTI_HAS(tutti_transport, port.api, register_memory))
    why = fmt::format("{} registers no memory", port.api->name);
  else if (port.api->register_memory(port.domain->handle(), &memory, &made.region) < 0)
    why = fmt::format("{}: {}", port.api->name, take_plugin_error());
  else
    window.owned[port.index] = true;
}

void Fabric::deregister_window(tutti_window& window) {
  for (const Port& port : ports_)
    if (port.index < window.owned.size() && window.owned[port.index])
      port.api->deregister_memory(port.domain->handle(), window.registrations[port.index].region);
  window.owned.clear();
  std::erase(windows_, &window);
}

}  // namespace tutti::core
