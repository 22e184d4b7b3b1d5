// SPDX-License-Identifier: Apache-2.0
#include "engine/host.hpp"

#include <fmt/format.h>
#include <sys/stat.h>
#include <tutti/registry.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include "bootstrap/failure.hpp"
#include "engine/registry.hpp"

namespace tutti {
namespace core {
namespace {

thread_local std::string plugin_error;

constexpr const char* level_names[] = {"", "error", "warn", "info", "debug", "trace"};

uint32_t log_level() {
  static const uint32_t level = [] {
    const char* text = std::getenv("TUTTI_LOG");
    if (!text) return uint32_t{TUTTI_LOG_WARN};
    for (uint32_t i = 1; i < std::size(level_names); ++i)
      if (std::strcmp(text, level_names[i]) == 0) return i;
    std::fprintf(stderr, "tutti: TUTTI_LOG=\"%s\" is none of error, warn, info, debug, trace: taken as warn\n", text);
    return uint32_t{TUTTI_LOG_WARN};
  }();
  return level;
}

void host_log(void*, const tutti_log_record* record) {
  if (!record || record->struct_size < sizeof(tutti_log_record) || record->level > log_level()) return;
  log(record->level, record->source ? record->source : "?", record->text ? record->text : "");
}
// What plugins asked for. Lives for good: so do the strings.
struct Configuration {
  std::mutex mutex;
  std::map<std::string, std::optional<std::string>> values;
};
Configuration& configuration() {
  static auto* const all = new Configuration();
  return *all;
}
const char* host_get_config(void*, const char* key) { return key ? host_config(key) : nullptr; }
void host_set_error(void*, tutti_status, const char* text) { plugin_error = text ? text : ""; }
void host_emit_event(void*, const tutti_event* event) {
  if (event && event->struct_size >= sizeof(tutti_event) && log_enabled(TUTTI_LOG_TRACE))
    log(TUTTI_LOG_TRACE, event->source ? event->source : "?",
        fmt::format("event {} = {}", event->name ? event->name : "?", event->value));
}
const void* host_find_interface(void*, const char* plugin, const char* id) {
  return plugin && id ? registry_interface(plugin, id) : nullptr;
}

}  // namespace

const tutti_host* host_table() {
  static const tutti_host table{
      sizeof(tutti_host), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR,    0, nullptr, host_log, host_get_config,
      host_set_error,     host_emit_event, host_find_interface};
  return &table;
}

namespace {
thread_local const char* meeting_address = nullptr;
}

OpenJob::OpenJob(std::string address) {
  // A setting's text lives for good.
  static std::mutex mutex;
  static auto& addresses = *new std::set<std::string>;
  const std::lock_guard lock(mutex);
  meeting_address = address.empty() ? nullptr : addresses.insert(std::move(address)).first->c_str();
}
OpenJob::~OpenJob() { meeting_address = nullptr; }

const char* host_config(const char* key) {
  if (std::string_view(key) == "meeting_address") return meeting_address;
  Configuration& asked = configuration();
  const std::lock_guard lock(asked.mutex);
  auto [entry, fresh] = asked.values.try_emplace(key);
  const char* now = std::getenv(key);
  // A program may set variables before it makes its first communicator: a value that appears later is taken up, one
  // that has been handed out stays.
  if (fresh || !entry->second) entry->second = now ? std::optional<std::string>(now) : std::nullopt;
  return entry->second ? entry->second->c_str() : nullptr;
}

std::vector<std::string> asked_settings() {
  Configuration& asked = configuration();
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
  if (const char* given = host_config("TUTTI_HOST_ID"); given && *given) return given;
  std::string boot = "unknown";
  if (std::ifstream file("/proc/sys/kernel/random/boot_id"); file)
    std::getline(file, boot);
  else if (const int error = errno; error != ENOENT && error != EACCES)  // taken for another host, it would mislead
    throw Failure(TUTTI_NO_RESOURCES,
                  fmt::format("/proc/sys/kernel/random/boot_id, which tells hosts apart, cannot be read: {}",
                              std::strerror(error)));
  struct stat namespace_file {};
  const bool known = stat("/proc/self/ns/net", &namespace_file) == 0;
  return fmt::format("{}/{}", boot, known ? static_cast<uint64_t>(namespace_file.st_ino) : 0);
}

}  // namespace core

std::string take_plugin_error() { return std::exchange(core::plugin_error, std::string()); }

}  // namespace tutti
