// SPDX-License-Identifier: Apache-2.0
//
// Looking through what a plugin hands over before any of it is used. Each answers with an empty text, or with why the
// plugin is refused: what was expected and what came. Only fields that struct_size covers are read.
#pragma once

#include <tutti/plugin/algorithm.h>
#include <tutti/plugin/collective.h>
#include <tutti/plugin/device.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/mapped.h>
#include <tutti/plugin/meeting.h>
#include <tutti/plugin/rails.h>
#include <tutti/plugin/rma.h>
#include <tutti/plugin/selector.h>
#include <tutti/plugin/tracer.h>
#include <tutti/plugin/transport.h>
#include <tutti/plugin/wrapper.h>

#include <string>

namespace tutti::core {

// May plugins, interfaces and devices be called so?
bool well_named(const char* name);
std::string check_entry(const tutti_plugin_entry_table* entry);
std::string check_interface(const tutti_transport* transport);
std::string check_interface(const tutti_wrapper* wrapper);
std::string check_interface(const tutti_algorithm* algorithm);
std::string check_interface(const tutti_collective* collective);
std::string check_interface(const tutti_meeting* meeting);
std::string check_interface(const tutti_tracer* tracer);
std::string check_interface(const tutti_selector* selector);
std::string check_interface(const tutti_rma* rma);
std::string check_interface(const tutti_device* device);
std::string check_interface(const tutti_executor* executor);
// The optional interfaces of a transport; NULL: it has none.
std::string check_optional(const tutti_transport& transport, const tutti_view* view, const tutti_wait_fd* wait,
                           const tutti_rails* rails, const tutti_mapped* mapped);
// A transport's report of a rail.
std::string check_rail(const tutti_rail* rail);

}  // namespace tutti::core
