// SPDX-License-Identifier: Apache-2.0
//
// Plugins by name (C++): for tools, conformance and tests. Plugins are searched once per process: those registered
// statically, then every libtutti-*.so in the folders of TUTTI_PLUGIN_PATH (colon-separated; a file is loaded itself), then in the folder
// lib/tutti beside the core library. A folder's plugin that is refused is listed with the reason; a file that TUTTI_PLUGIN_PATH names
// and that is refused is an error of every communicator. All functions may be called by any thread.
#pragma once

#include <tutti/plugin/algorithm.h>
#include <tutti/plugin/device.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>

#include <string>
#include <vector>

#if defined(__GNUC__)
#pragma GCC visibility push(default)
#endif

namespace tutti {

struct PluginRecord {
  std::string path;  // "(static)" for registered ones
  std::string id, version, vendor, license, summary;
  std::vector<std::string> transports, algorithms, devices;  // names of its interfaces
  bool loaded = false;
  bool required = false;  // named by the user as a file
  std::string reason;     // why it was refused
};

// Every plugin found, loaded or refused, in order of search.
std::vector<PluginRecord> list_plugins();

// Loads one more shared library. On refusal `error` says why and what was expected.
tutti_status load_plugin(const std::string& path, std::string* error);

// A device and the streams that belong to it.
struct DeviceTables {
  const tutti_device* memory = nullptr;
  const tutti_executor* executor = nullptr;
};

// All transports, algorithms and devices, in order of their names.
std::vector<const tutti_transport*> list_transports();
std::vector<const tutti_algorithm*> list_algorithms();
std::vector<DeviceTables> list_devices();

// By name; NULL with the names there are, or why the plugin that should have it was refused, in `error`.
const tutti_transport* find_transport(const std::string& name, std::string* error);
const tutti_algorithm* find_algorithm(const std::string& name, std::string* error);

// Why an ABI call of this thread failed: the text of the last set_error since the last take; "" when there was none.
std::string take_plugin_error();

}  // namespace tutti

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
