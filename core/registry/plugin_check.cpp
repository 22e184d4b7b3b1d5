// SPDX-License-Identifier: Apache-2.0
#include "registry/plugin_check.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <tutti/sized.hpp>
#include <utility>

namespace tutti::core {
namespace {

constexpr size_t longest_name = 64;

constexpr uint32_t stable = 0;  // in the place of a draft's stamp

constexpr const char* naming = "1 to 64 lower case letters, digits, - and _";

using Functions = std::initializer_list<std::pair<const char*, bool>>;

// The name of the first mandatory function that is missing, or nullptr.
const char* missing(Functions functions) {
  for (const auto& [name, there] : functions)
    if (!there) return name;
  return nullptr;
}

// A transport that hosts others is called by its own name and theirs, "nccl:ofi".
template <typename Table>
bool table_well_named(const Table* table) {
  if (!std::is_same_v<Table, tutti_transport> || !table->name) return well_named(table->name);
  const std::string name(table->name, strnlen(table->name, longest_name + 1));
  const size_t colon = name.find(':');
  if (colon == name.npos || name.size() > longest_name) return well_named(name.c_str());
  return well_named(name.substr(0, colon).c_str()) && well_named(name.substr(colon + 1).c_str());
}

// A table's size and stamp (0: the interface is stable), its name where it has one, and its mandatory functions.
// `first_missing` looks only at what these cover.
template <typename Table, typename Missing>
std::string check_table(const Table* table, const char* word, const char* id, uint32_t stamp, Missing&& first_missing) {
  if (const SizeVerdict verdict = judge_table(table, stamp); verdict.status < 0)
    return fmt::format("its {} table: {}", id, verdict.text);
  std::string subject = word;
  if constexpr (requires { table->name; }) {
    if (!table_well_named(table)) return fmt::format("the name of a {} must be {}", word, naming);
    subject += fmt::format(" {}", table->name);
  }
  const char* name = first_missing();
  return name ? fmt::format("{}: the mandatory function {} is NULL", subject, name) : "";
}

}  // namespace

bool well_named(const char* name) {
  if (!name || !*name) return false;
  const size_t length = strnlen(name, longest_name + 1);
  return length <= longest_name && std::all_of(name, name + length, [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '_';
         });
}

std::string check_interface(const tutti_transport* t) {
  std::string reason = check_table(t, "transport", TUTTI_TRANSPORT_ID, stable, [&] {
    return missing({{"open_domain", t->open_domain},
                    {"close_domain", t->close_domain},
                    {"query", t->query},
                    {"open_endpoint", t->open_endpoint},
                    {"close_endpoint", t->close_endpoint},
                    {"connect", t->connect},
                    {"post", t->post},
                    {"progress", t->progress},
                    {"send_control", t->send_control},
                    {"abort", t->abort},
                    {"get_interface", t->get_interface}});
  });
  if (reason.empty() && !t->register_memory != !t->deregister_memory)
    reason = fmt::format("transport {}: register_memory and deregister_memory come both or not at all", t->name);
  return reason;
}

std::string check_interface(const tutti_wrapper* w) {
  return check_table(w, "wrapper", TUTTI_WRAPPER_ID, TUTTI_WRAPPER_STAMP, [&] { return missing({{"wrap", w->wrap}}); });
}

std::string check_interface(const tutti_collective* c) {
  return check_table(c, "collective", TUTTI_COLLECTIVE_ID, TUTTI_COLLECTIVE_STAMP, [&] {
    return missing({{"create", c->create},
                    {"supports", c->supports},
                    {"start", c->start},
                    {"test", c->test},
                    {"abort", c->abort},
                    {"destroy", c->destroy}});
  });
}

std::string check_interface(const tutti_meeting* m) {
  return check_table(m, "meeting", TUTTI_MEETING_ID, stable, [&] {
    return missing({{"open", m->open}, {"all_gather", m->all_gather}, {"abort", m->abort}, {"close", m->close}});
  });
}

std::string check_interface(const tutti_tracer* t) {
  return check_table(t, "tracer", TUTTI_TRACER_ID, TUTTI_TRACER_STAMP, [&] {
    return missing({{"check", t->check}, {"open", t->open}, {"write", t->write}, {"close", t->close}});
  });
}

std::string check_interface(const tutti_selector* s) {
  return check_table(s, "selector", TUTTI_SELECTOR_ID, TUTTI_SELECTOR_STAMP, [&] {
    return missing({{"choose", s->choose}});
  });
}

std::string check_interface(const tutti_rma* r) {
  return check_table(r, "rma", TUTTI_RMA_ID, TUTTI_RMA_STAMP, [&] {
    return missing({{"open", r->open},
                    {"close", r->close},
                    {"export_region", r->export_region},
                    {"withdraw_region", r->withdraw_region},
                    {"import_region", r->import_region},
                    {"release_region", r->release_region},
                    {"put", r->put},
                    {"get", r->get},
                    {"signal", r->signal},
                    {"test_signal", r->test_signal},
                    {"progress", r->progress},
                    {"abort", r->abort}});
  });
}

std::string check_interface(const tutti_algorithm* a) {
  return check_table(a, "algorithm", TUTTI_ALGORITHM_ID, stable, [&] {
    return missing({{"supports", a->supports}, {"schedule", a->schedule}});
  });
}

std::string check_interface(const tutti_device* d) {
  std::string reason = check_table(d, "device", TUTTI_DEVICE_ID, TUTTI_DEVICE_STAMP, [&] {
    return missing({{"query", d->query},
                    {"classify", d->classify},
                    {"allocate", d->allocate},
                    {"release", d->release},
                    {"map_host", d->map_host},
                    {"unmap_host", d->unmap_host},
                    {"enable_peer", d->enable_peer}});
  });
  if (!reason.empty()) return reason;
  const bool exports = TUTTI_HAS(tutti_device, d, export_memory);
  if (exports != TUTTI_HAS(tutti_device, d, import_memory) || exports != TUTTI_HAS(tutti_device, d, close_import))
    return fmt::format("device {}: export_memory, import_memory and close_import come all or not at all", d->name);
  return {};
}

std::string check_interface(const tutti_executor* e) {
  std::string reason = check_table(e, "executor", TUTTI_EXECUTOR_ID, TUTTI_EXECUTOR_STAMP, [&] {
    return missing({{"prepare", e->prepare},
                    {"stream_state", e->stream_state},
                    {"create_event", e->create_event},
                    {"destroy_event", e->destroy_event},
                    {"query_event", e->query_event},
                    {"enqueue", e->enqueue}});
  });
  if (!reason.empty()) return reason;
  if (!e->create_stream != !e->destroy_stream)
    return "executor: create_stream and destroy_stream come both or not at all";
  if (TUTTI_HAS(tutti_executor, e, enqueue_fused) != TUTTI_HAS(tutti_executor, e, query))
    return "executor: enqueue_fused and query come both or not at all";
  return {};
}

std::string check_optional(const tutti_transport& transport, const tutti_view* view, const tutti_wait_fd* wait,
                           const tutti_rails* rails, const tutti_mapped* mapped) {
  std::string reason;
  const auto check = [&](const auto* table, const char* id, uint32_t stamp, auto&& first_missing) {
    if (table && reason.empty()) reason = check_table(table, id, id, stamp, first_missing);
  };
  check(view, TUTTI_VIEW_ID, stable, [&] {
    return missing({{"try_receive", view->try_receive},
                    {"release", view->release},
                    {"try_reserve", view->try_reserve},
                    {"commit", view->commit}});
  });
  check(wait, TUTTI_WAIT_FD_ID, stable, [&] {
    return missing({{"get_fd", wait->get_fd}, {"arm", wait->arm}, {"disarm", wait->disarm}});
  });
  check(rails, TUTTI_RAILS_ID, stable, [&] { return missing({{"of_host", rails->of_host}}); });
  check(mapped, TUTTI_MAPPED_ID, TUTTI_MAPPED_STAMP, [&] {
    return missing({{"share", mapped->share},
                    {"share_state", mapped->share_state},
                    {"withdraw", mapped->withdraw},
                    {"open_mapping", mapped->open_mapping},
                    {"close_mapping", mapped->close_mapping},
                    {"decline", mapped->decline}});
  });
  return reason.empty() ? reason : fmt::format("transport {}: {}", transport.name, reason);
}

std::string check_rail(const tutti_rail* rail) { return judge_size(rail).text; }

std::string check_entry(const tutti_plugin_entry_table* entry) {
  SizeVerdict verdict = judge_offer(entry);
  if (verdict.status < 0) return fmt::format("its entry table: {}", verdict.text);
  if (entry->abi_major != TUTTI_ABI_MAJOR)
    return fmt::format("it was compiled for plugin ABI {}, this Tutti has ABI {}", entry->abi_major, TUTTI_ABI_MAJOR);
  verdict = judge_size(entry);
  if (verdict.status < 0) return fmt::format("its entry table: {}", verdict.text);
  if (!entry->info || !entry->init || !entry->get_interface) return "its entry table lacks info, init or get_interface";
  verdict = judge_size(entry->info);
  if (verdict.status < 0) return fmt::format("its info: {}", verdict.text);
  if (!well_named(entry->info->id)) return fmt::format("its id must be {}", naming);
  if (!entry->info->version || !entry->info->vendor || !entry->info->license || !entry->info->summary)
    return fmt::format("plugin {}: version, vendor, license and summary must all be given", entry->info->id);
  return {};
}

}  // namespace tutti::core
