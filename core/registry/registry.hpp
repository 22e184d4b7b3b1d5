// SPDX-License-Identifier: Apache-2.0
//
// The registry's functions for the core, beyond tutti/registry.h.
#pragma once

#include <tutti/plugin/entry.h>

#include <string>

namespace tutti::core {

// The first interface `id` of a loaded plugin, or nullptr.
const void* registry_interface(const char* plugin, const char* id);
// The index-th interface `id` of all loaded plugins, or nullptr.
const void* registry_interface(const char* id, uint32_t index);
tutti_status register_static(const tutti_plugin_entry_table* entry, std::string* error);
// Why a plugin that the user named cannot be used; "" when all can.
std::string required_plugin_error();

}  // namespace tutti::core
