// SPDX-License-Identifier: Apache-2.0
//
// The device of tests, whose memory is the process's own. A machine's true devices may be listed before it.
#pragma once

#include <tutti/registry.h>

#include <stdexcept>
#include <string_view>

namespace tutti::test {

// The simulated device, or the sample plugin that is a second one: whichever is listed first.
inline DeviceTables device() {
  for (const DeviceTables& tables : list_devices())
    if (const std::string_view name = tables.memory->name; name == "simulated" || name == "second") return tables;
  throw std::runtime_error("no simulated device: set TUTTI_PLUGIN_PATH");
}

}  // namespace tutti::test
