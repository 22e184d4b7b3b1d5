// SPDX-License-Identifier: Apache-2.0
//
// Graphs of captured streams of the simulated device.
#pragma once

#include "simulated_plugin.hpp"

namespace tutti::test {

// As plugins/simulated-device/src/plugin.cpp has them.
struct Graphs {
  uint32_t struct_size;
  uint32_t reserved;
  tutti_status (*begin)(void* const* streams, uint64_t n, void** graph);
  tutti_status (*end)(void* graph);
  tutti_status (*launch)(void* graph);
  void (*destroy)(void* graph);
};

inline const Graphs& graphs() {
  static const auto* found = static_cast<const Graphs*>(simulated_interface("tutti.simulated_graphs/1"));
  return *found;
}

}  // namespace tutti::test
