// SPDX-License-Identifier: Apache-2.0
//
// The simulated device's counters of this process.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <tutti/plugin/entry.h>
#include <tutti/registry.h>

#include <atomic>
#include <cstdlib>

namespace tutti::test {

struct SimulatedCounters {
  std::atomic<uint64_t> launches;      // pieces of work that its devices were given
  std::atomic<uint64_t> queries;       // calls of classify
  std::atomic<uint64_t> synchronised;  // calls that may wait for a whole device, made while one was not done
};

inline const SimulatedCounters& counters() {
  static const SimulatedCounters* const found = [] {
    for (const PluginRecord& plugin : list_plugins()) {
      if (plugin.id != "simulated") continue;
      void* library = dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
      const auto* entry = static_cast<const tutti_plugin_entry_table*>(dlsym(library, TUTTI_PLUGIN_ENTRY_SYMBOL));
      return static_cast<const SimulatedCounters*>(entry->get_interface("tutti.simulated_launches/1", 0));
    }
    ADD_FAILURE() << "no simulated device: set TUTTI_PLUGIN_PATH";
    std::abort();
  }();
  return *found;
}

}  // namespace tutti::test
