// SPDX-License-Identifier: Apache-2.0
//
// Graphs of captured streams of the simulated device.
#pragma once

#include <dlfcn.h>
#include <tutti/plugin/entry.h>
#include <tutti/registry.h>

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
  static const Graphs* found = [] {
    for (const PluginRecord& record : list_plugins()) {
      if (!record.loaded || record.id != "simulated") continue;
      void* library = dlopen(record.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
      const void* entry = library ? dlsym(library, "tutti_plugin_entry") : nullptr;
      if (entry)
        return static_cast<const Graphs*>(
            static_cast<const tutti_plugin_entry_table*>(entry)->get_interface("tutti.simulated_graphs/1", 0));
    }
    return static_cast<const Graphs*>(nullptr);
  }();
  return *found;
}

}  // namespace tutti::test
