// SPDX-License-Identifier: Apache-2.0
#include "registry/host.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <tutti/base/host_identity.hpp>
#include <tutti/base/system_text.hpp>
#include <tutti/sized.hpp>
#include <utility>

#include "base/failure.hpp"
#include "base/settings.hpp"
#include "base/wire.hpp"
#include "registry/plugin_check.hpp"
#include "registry/registry.hpp"

namespace tutti {
namespace core {
namespace {

thread_local std::string plugin_error;

constexpr const char* level_names[] = {"", "error", "warn", "info", "debug", "trace"};

uint32_t log_level() {
  static const uint32_t level = [] {
    const auto text = setting("TUTTI_LOG");
    if (!text) return uint32_t{TUTTI_LOG_WARN};
    for (uint32_t i = 1; i < std::size(level_names); ++i)
      if (*text == level_names[i]) return i;
    std::fprintf(stderr, "tutti: TUTTI_LOG=\"%s\": expected error, warn, info, debug or trace; taken as warn\n",
                 text->c_str());
    return uint32_t{TUTTI_LOG_WARN};
  }();
  return level;
}

// No exception may cross the C boundary: where memory runs out a line or a text is lost.
void host_log(void*, const tutti_log_record* record) try {
  if (const SizeVerdict verdict = judge_size(record); verdict.status < 0)
    return log(TUTTI_LOG_WARN, "plugins", fmt::format("a line for the log is dropped: {}", verdict.text));
  log(record->level, record->source ? record->source : "?", record->text ? record->text : "");
} catch (const std::bad_alloc&) {
}
// The settings that plugins asked for. Lives for good: so do the strings.
struct PluginSettings {
  std::mutex mutex;
  std::map<std::string, std::optional<std::string>> values;
};
PluginSettings& plugin_settings() {
  static auto* const all = new PluginSettings();
  return *all;
}
const char* host_get_config(void*, const char* key) try {
  return key ? host_config(key) : nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}
// A plugin's words may be those of a peer.
void host_set_error(void*, tutti_status, const char* text) try {
  leave_plugin_error(text ? printable(text, longest_message).c_str() : nullptr);
} catch (const std::bad_alloc&) {
}
const char* host_get_error(void*) { return plugin_error.c_str(); }
const void* host_find_interface(void*, const char* plugin, const char* id) try {
  return plugin && id ? registry_interface(plugin, id) : nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}

const void* host_list_interface(void*, const char* id, uint32_t index) try {
  return id ? registry_interface(id, index) : nullptr;
} catch (const std::bad_alloc&) {
  return nullptr;
}

uint32_t host_memory_kind(void*, const char* name) try {
  return memory_kind(name ? name : "");
} catch (const Failure& failure) {
  host_set_error(nullptr, failure.status, failure.text.c_str());
  return UINT32_MAX;
} catch (const std::bad_alloc&) {
  return UINT32_MAX;
}

}  // namespace

const tutti_host* host_table() {
  static const tutti_host table{sizeof(tutti_host),
                                TUTTI_ABI_MAJOR,
                                TUTTI_ABI_MINOR,
                                0,
                                nullptr,
                                host_log,
                                host_get_config,
                                host_set_error,
                                host_find_interface,
                                host_memory_kind,
                                host_get_error,
                                host_list_interface};
  return &table;
}

uint32_t memory_kind(const std::string& name) {
  static std::mutex mutex;
  static auto& kinds = *new std::map<std::string, uint32_t>{
      {"host", TUTTI_MEMORY_HOST}, {"cuda", TUTTI_MEMORY_CUDA}, {"simulated", TUTTI_MEMORY_SIMULATED}};
  static uint32_t next = TUTTI_FIRST_NAMED_MEMORY;
  const std::lock_guard lock(mutex);
  if (const auto known = kinds.find(name); known != kinds.end()) return known->second;
  if (!well_named(name.c_str()))
    throw Failure(TUTTI_INVALID_ARGUMENT, fmt::format("memory_kind of \"{}\": no device has such a name", name));
  if (next > TUTTI_LAST_NAMED_MEMORY)
    throw Failure(TUTTI_NO_RESOURCES,
                  fmt::format("memory_kind of \"{}\": all numbers from {} to {} are in use", name,
                              uint32_t{TUTTI_FIRST_NAMED_MEMORY}, uint32_t{TUTTI_LAST_NAMED_MEMORY}));
  return kinds.emplace(name, next++).first->second;
}

const char* host_config(const char* key) {
  PluginSettings& asked = plugin_settings();
  const std::lock_guard lock(asked.mutex);
  auto [entry, fresh] = asked.values.try_emplace(key);
  const char* now = std::getenv(key);
  // A program may set variables before it makes its first communicator: a value that appears later is taken up, one
  // that has been handed out stays.
  if (fresh || !entry->second) entry->second = now ? std::optional<std::string>(now) : std::nullopt;
  return entry->second ? entry->second->c_str() : nullptr;
}

std::vector<std::string> asked_settings() {
  PluginSettings& asked = plugin_settings();
  const std::lock_guard lock(asked.mutex);
  std::vector<std::string> names;
  for (const auto& [name, value] : asked.values) names.push_back(name);
  return names;
}

bool log_enabled(uint32_t level) { return level <= log_level(); }

void log(uint32_t level, const std::string& source, const std::string& text) {
  if (!log_enabled(level)) return;
  const std::string line = fmt::format("tutti {}: {}: {}\n", level_names[level], source, text);
  std::fwrite(line.data(), 1, line.size(), stderr);  // one write: lines of several ranks do not mix
}

std::string host_key() {
  const char* const given = host_config("TUTTI_HOST_ID");
  if (given && !*given) throw Failure(TUTTI_INVALID_ARGUMENT, "TUTTI_HOST_ID is set but empty");
  errno = 0;
  if (!given && boot_id().empty() && (errno == EMFILE || errno == ENFILE))  // taken for another host, it would mislead
    throw Failure(TUTTI_NO_RESOURCES,
                  fmt::format("the kernel's boot id, which tells hosts apart, cannot be read: {}", system_text(errno)));
  return tutti::host_key(given);
}

void leave_plugin_error(const char* text) noexcept try {
  plugin_error = text ? text : "";
} catch (const std::bad_alloc&) {
  plugin_error.clear();
}

}  // namespace core

std::string take_plugin_error() { return std::exchange(core::plugin_error, std::string()); }

}  // namespace tutti
