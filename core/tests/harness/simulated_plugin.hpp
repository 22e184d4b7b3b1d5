// SPDX-License-Identifier: Apache-2.0
//
// Interfaces of the simulated device's own, beside device/1 and executor/1: for applications and tests.
#pragma once

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <tutti/plugin/entry.h>
#include <tutti/registry.h>

#include <cstdlib>

namespace tutti::test {

inline const void* simulated_interface(const char* id) {
  for (const PluginRecord& plugin : list_plugins()) {
    if (!plugin.loaded || plugin.id != "simulated") continue;
    void* library = dlopen(plugin.path.c_str(), RTLD_NOW | RTLD_NOLOAD);
    const void* entry = library ? dlsym(library, TUTTI_PLUGIN_ENTRY_SYMBOL) : nullptr;
    if (entry) return static_cast<const tutti_plugin_entry_table*>(entry)->get_interface(id, 0);
  }
  ADD_FAILURE() << "no simulated device: set TUTTI_PLUGIN_PATH";
  std::abort();
}

// As plugins/simulated-device/src/plugin.cpp has it: memory that applications have by other ways than allocate().
struct SimulatedMemory {
  uint32_t struct_size;
  uint32_t reserved;
  tutti_status (*managed)(uint32_t device, uint64_t bytes, void** address);
  tutti_status (*ranges)(uint32_t device, uint64_t n, uint64_t bytes, void** address);
};

}  // namespace tutti::test
