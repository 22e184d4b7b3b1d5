// SPDX-License-Identifier: Apache-2.0
#include "engine/plugin_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace tutti::core {
namespace {

constexpr size_t longest_name = 64;

bool well_named(const char* name) {
  if (!name || !*name) return false;
  const size_t length = strnlen(name, longest_name + 1);
  return length <= longest_name && std::all_of(name, name + length, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

constexpr const char* naming = "1 to 64 lower case letters, digits, - and _";

template <typename Table>
std::string check_stamp(const Table* table, const char* kind, uint32_t expected, size_t least = sizeof(Table)) {
  if (table->struct_size < least)
    return fmt::format("its {} table has {} bytes, expected at least {}: it was compiled with older headers", kind,
                       table->struct_size, least);
  if (table->stamp != expected)
    return fmt::format(
        "its {} table has draft stamp {:#010x}, this Tutti has {:#010x}: compile the plugin with this Tutti's headers",
        kind, table->stamp, expected);
  return {};
}

using Functions = std::initializer_list<std::pair<const char*, bool>>;

// The name of the first mandatory function that is missing, or nullptr.
const char* missing(Functions functions) {
  for (const auto& [name, there] : functions)
    if (!there) return name;
  return nullptr;
}

}  // namespace

std::string check_interface(const tutti_transport* t) {
  if (auto reason = check_stamp(t, TUTTI_TRANSPORT_ID, TUTTI_TRANSPORT_STAMP); !reason.empty()) return reason;
  if (!well_named(t->name)) return fmt::format("a transport's name must be {}", naming);
  if (const char* name = missing({{"query", t->query},
                                  {"open_domain", t->open_domain},
                                  {"close_domain", t->close_domain},
                                  {"open_endpoint", t->open_endpoint},
                                  {"close_endpoint", t->close_endpoint},
                                  {"get_address", t->get_address},
                                  {"connect", t->connect},
                                  {"post", t->post},
                                  {"progress", t->progress},
                                  {"send_control", t->send_control},
                                  {"fail_peer", t->fail_peer},
                                  {"abort", t->abort},
                                  {"get_interface", t->get_interface}}))
    return fmt::format("transport {}: the mandatory function {} is NULL", t->name, name);
  if (!t->register_memory != !t->deregister_memory)
    return fmt::format("transport {}: register_memory and deregister_memory come both or not at all", t->name);
  return {};
}

std::string check_interface(const tutti_algorithm* a) {
  if (auto reason = check_stamp(a, TUTTI_ALGORITHM_ID, TUTTI_ALGORITHM_STAMP); !reason.empty()) return reason;
  if (!well_named(a->name)) return fmt::format("an algorithm's name must be {}", naming);
  if (const char* name = missing({{"supports", a->supports}, {"schedule", a->schedule}}))
    return fmt::format("algorithm {}: the mandatory function {} is NULL", a->name, name);
  return {};
}

std::string check_interface(const tutti_device* d) {
  if (auto reason = check_stamp(d, TUTTI_DEVICE_ID, TUTTI_DEVICE_STAMP); !reason.empty()) return reason;
  if (!well_named(d->name)) return fmt::format("a device's name must be {}", naming);
  if (const char* name = missing({{"query", d->query},
                                  {"classify", d->classify},
                                  {"allocate", d->allocate},
                                  {"release", d->release},
                                  {"map_host", d->map_host},
                                  {"unmap_host", d->unmap_host},
                                  {"enable_peer", d->enable_peer}}))
    return fmt::format("device {}: the mandatory function {} is NULL", d->name, name);
  if (!d->export_memory != !d->import_memory || !d->export_memory != !d->close_import)
    return fmt::format("device {}: export_memory, import_memory and close_import come all or not at all", d->name);
  return {};
}

std::string check_interface(const tutti_executor* e) {
  if (auto reason = check_stamp(e, TUTTI_EXECUTOR_ID, TUTTI_EXECUTOR_STAMP); !reason.empty()) return reason;
  if (const char* name = missing({{"prepare", e->prepare},
                                  {"create_stream", e->create_stream},
                                  {"destroy_stream", e->destroy_stream},
                                  {"stream_state", e->stream_state},
                                  {"create_mark", e->create_mark},
                                  {"destroy_mark", e->destroy_mark},
                                  {"poll_mark", e->poll_mark},
                                  {"enqueue", e->enqueue}}))
    return fmt::format("executor: the mandatory function {} is NULL", name);
  return {};
}

std::string check_optional(const tutti_transport& transport, const tutti_view* view, const tutti_wait_fd* wait,
                           const tutti_rails* rails) {
  std::string reason;
  const char* name = nullptr;
  if (view) {
    reason = check_stamp(view, TUTTI_VIEW_ID, TUTTI_VIEW_STAMP, offsetof(tutti_view, send_region));
    if (reason.empty())
      name = missing({{"try_receive", view->try_receive},
                      {"release", view->release},
                      {"try_reserve", view->try_reserve},
                      {"commit", view->commit}});
  }
  if (wait && reason.empty() && !name) {
    reason = check_stamp(wait, TUTTI_WAIT_FD_ID, TUTTI_WAIT_FD_STAMP);
    if (reason.empty()) name = missing({{"get_fd", wait->get_fd}, {"arm", wait->arm}, {"disarm", wait->disarm}});
  }
  if (rails && reason.empty() && !name) {
    reason = check_stamp(rails, TUTTI_RAILS_ID, TUTTI_RAILS_STAMP, offsetof(tutti_rails, of_endpoint));
    if (reason.empty()) name = missing({{"of_host", rails->of_host}});
  }
  if (name) reason = fmt::format("the mandatory function {} of an optional interface is NULL", name);
  return reason.empty() ? reason : fmt::format("transport {}: {}", transport.name, reason);
}

std::string check_entry(const tutti_plugin_entry_table* entry) {
  if (entry->struct_size < sizeof(tutti_plugin_entry_table))
    return fmt::format("its entry table has {} bytes, expected at least {}", entry->struct_size,
                       sizeof(tutti_plugin_entry_table));
  if (entry->abi_major != TUTTI_ABI_MAJOR)
    return fmt::format("it was compiled for plugin ABI {}, this Tutti has ABI {}", entry->abi_major, TUTTI_ABI_MAJOR);
  if (!entry->info || !entry->init || !entry->deinit || !entry->get_interface)
    return "its entry table lacks info, init, deinit or get_interface";
  if (entry->info->struct_size < sizeof(tutti_plugin_info))
    return fmt::format("its info has {} bytes, expected at least {}", entry->info->struct_size,
                       sizeof(tutti_plugin_info));
  if (!well_named(entry->info->id)) return fmt::format("its id must be {}", naming);
  if (!entry->info->version || !entry->info->vendor || !entry->info->license || !entry->info->summary)
    return fmt::format("plugin {}: version, vendor, license and summary must all be given", entry->info->id);
  return {};
}

}  // namespace tutti::core
