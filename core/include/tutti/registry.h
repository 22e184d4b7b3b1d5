// SPDX-License-Identifier: Apache-2.0
//
// Plugins by name (C++): for tools, conformance and tests. The search runs once per process, in this order: statically
// registered plugins, libtutti-*.so in TUTTI_PLUGIN_PATH (folders or files, colon-separated), and those in the folder
// lib/tutti beside the core library. A refused plugin of a folder is listed with the reason. A refused file that
// TUTTI_PLUGIN_PATH names is an error of every communicator. A file that is truncated, or that untrusted users may
// write, is refused before it is loaded (core/README.md says who is trusted). Any thread may call any function.
#pragma once

#include <tutti/plugin/algorithm.h>
#include <tutti/plugin/collective.h>
#include <tutti/plugin/device.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/meeting.h>
#include <tutti/plugin/rma.h>
#include <tutti/plugin/selector.h>
#include <tutti/plugin/tracer.h>
#include <tutti/plugin/transport.h>

#include <cstdint>
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
  std::vector<std::string> others;                           // other interfaces: "tutti.meeting/1 NAME"
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
std::vector<const tutti_collective*> list_collectives();
std::vector<const tutti_meeting*> list_meetings();
std::vector<const tutti_selector*> list_selectors();
std::vector<const tutti_rma*> list_rmas();
std::vector<const tutti_tracer*> list_tracers();

// The capabilities of a transport's domain for host memory; after an error take_plugin_error() has the reason.
tutti_status query_transport(const tutti_transport& transport, tutti_transport_caps* caps);

// By name. On NULL `error` has the known names, or why the plugin that should have it was refused.
const tutti_transport* find_transport(const std::string& name, std::string* error);
const tutti_algorithm* find_algorithm(const std::string& name, std::string* error);
const tutti_meeting* find_meeting(const std::string& name, std::string* error);
const tutti_selector* find_selector(const std::string& name, std::string* error);
const tutti_tracer* find_tracer(const std::string& name, std::string* error);

// An environment variable that the library reads, as core/README.md lists it. `fallback` is the value used where it is
// not set, or describes that in words. Both texts are Markdown whose links are relative to core/.
struct SettingRecord {
  std::string name, fallback, meaning;
};
// Transports have settings of their own, listed in their READMEs. [any thread]
std::vector<SettingRecord> list_settings();

// One sentence for each variable of the environment that begins with TUTTI_ and that neither the library nor a plugin
// knows, with the most similar known name: "TUTTI_TRANSPRT is set, but there is no such setting; did you mean
// TUTTI_TRANSPORT?".
std::vector<std::string> list_unknown_settings();

// The host on which this process runs.
struct HostIdentity {
  std::string key;     // as communicators tell hosts apart: TUTTI_HOST_ID, else the kernel and the network namespace
  bool given = false;  // by TUTTI_HOST_ID
  uint64_t processes = 0;  // tutti_flight_header.host here: where it is equal, process ids name the same processes
};
HostIdentity host_identity();

// Why an ABI call of this thread failed: the text of the last set_error since the last take; "" when there was none.
std::string take_plugin_error();

}  // namespace tutti

#if defined(__GNUC__)
#pragma GCC visibility pop
#endif
