// SPDX-License-Identifier: Apache-2.0
//
// The plugin's end of tutti/plugin/entry.h: the entry symbol, the host's services, and the one place where C++
// exceptions become status codes.
//
//   static const tutti_transport transport = tutti::sdk::make_transport<MyTransport>();
//   TUTTI_PLUGIN(mytransport, "mytransport", "1.0.0", "me", "Apache-2.0", "what it is",
//                {TUTTI_TRANSPORT_ID, &transport});
#pragma once

#include <tutti/plugin/entry.h>

#include <cstring>
#include <exception>
#include <initializer_list>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tutti/base/system_text.hpp>
#include <tutti/base/text.hpp>
#include <tutti/sized.hpp>

// The SDK's own inline namespace. Plugins that are linked statically into one binary have one each (tutti_plugin() sees
// to it), so that each keeps its own host table and id.
#ifndef TUTTI_SDK_NAMESPACE
#define TUTTI_SDK_NAMESPACE v1
#endif

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// The services of the core; set before any other call reaches the plugin, constant from then on.
inline const tutti_host* host = nullptr;
// The plugin's id, for log lines.
inline const char* plugin_id = "";

// An error on its way to the boundary: a status and a text that says who, what was expected, what came, what to do.
class Error : public std::exception {
 public:
  Error(tutti_status status, std::string text) : status_(status), text_(std::move(text)) {}
  const char* what() const noexcept override { return text_.c_str(); }
  tutti_status status() const noexcept { return status_; }

 private:
  tutti_status status_;
  std::string text_;
};

// TUTTI_SYSTEM with the words of errno.
inline Error system_error(std::string what, int error_number) {
  return Error(TUTTI_SYSTEM, what + ": " + system_text(error_number));
}

inline void log(uint32_t level, const std::string& text) noexcept {
  if (!host || !host->log) return;
  const tutti_log_record record{sizeof record, level, plugin_id, text.c_str()};
  host->log(host->self, &record);
}

inline tutti_status report(tutti_status status, const char* text) noexcept {
  if (host && host->set_error) host->set_error(host->self, status, text);
  return status;
}

// The reason that another plugin has just given on this thread; "" where the core cannot tell.
inline std::string reported() {
  return host && TUTTI_HAS(tutti_host, host, get_error) ? host->get_error(host->self) : std::string();
}

// Runs `body`, which returns a status or nothing, and turns any exception into a reported status.
template <typename Body>
tutti_status guard(Body&& body) noexcept {
  try {
    if constexpr (std::is_void_v<decltype(body())>) {
      body();
      return TUTTI_OK;
    } else {
      return body();
    }
  } catch (const Error& e) {
    return report(e.status(), e.what());
  } catch (const std::bad_alloc&) {
    return report(TUTTI_NO_RESOURCES, "out of memory");
  } catch (const std::exception& e) {
    return report(TUTTI_INTERNAL, e.what());
  } catch (...) {
    return report(TUTTI_INTERNAL, "an exception that is not a std::exception");
  }
}

// A struct from the host, with the fields that this plugin knows; fields beyond the struct's end are zero. Throws
// TUTTI_INVALID_ARGUMENT if it is too short, TUTTI_NOT_SUPPORTED if it sets a field that this plugin does not know.
template <typename Struct>
Struct accepted(const Struct* given) {
  const SizeVerdict verdict = judge_size(given);
  if (verdict.status < 0) throw Error(verdict.status, verdict.text);
  return known_part(*given);
}

// The same for a table of services, which may have more than this plugin knows.
template <typename Struct>
const Struct& accepted_offer(const Struct* given) {
  const SizeVerdict verdict = judge_offer(given);
  if (verdict.status < 0) throw Error(verdict.status, verdict.text);
  return *given;
}

// Lets `fill` fill an output struct; fields for which the caller has no room are left out.
template <typename Struct, typename Fill>
void fill_sized(Struct* out, Fill&& fill) {
  accepted_offer(out);
  Struct full{};
  full.struct_size = sizeof full;
  fill(full);
  fill_room(out, full);
}

// The plugin's init.
inline tutti_status start(const tutti_host* given, const char* id) noexcept {
  return guard([&] {
    host = &accepted_offer(given);
    plugin_id = id;
  });
}

// The number of a device's kind of memory (tutti_host.memory_kind).
inline uint32_t memory_kind(const char* name) {
  const uint32_t kind = host->memory_kind(host->self, name);
  if (kind == UINT32_MAX)
    throw Error(TUTTI_NO_RESOURCES, std::string("the core has no kind of memory for the device ") + name);
  return kind;
}

// A setting by its full name; nothing when it is not set.
inline std::optional<std::string> config(const char* key) {
  const char* value = host && host->get_config ? host->get_config(host->self, key) : nullptr;
  return value ? std::optional<std::string>(value) : std::nullopt;
}

using tutti::whole_number;

// A whole number in [low, high] from a setting; `fallback` when it is not set; an error when it is anything else.
inline uint64_t config_number(const char* key, uint64_t fallback, uint64_t low, uint64_t high) {
  const auto text = config(key);
  if (!text) return fallback;
  if (const auto value = whole_number(*text, low, high)) return *value;
  throw Error(TUTTI_INVALID_ARGUMENT, std::string(key) + "=\"" + *text + "\" is not a whole number from " +
                                          std::to_string(low) + " to " + std::to_string(high));
}

// The plugin's own class behind an opaque handle, and back.
template <typename T, typename Handle>
T& from_handle(Handle* handle) {
  return *reinterpret_cast<T*>(handle);
}
template <typename Handle, typename T>
Handle* to_handle(T* object) {
  return reinterpret_cast<Handle*>(object);
}

// One interface that a plugin offers.
struct Interface {
  const char* id;
  const void* table;
};

inline const void* find_interface(std::initializer_list<Interface> interfaces, const char* id,
                                  uint32_t index) noexcept {
  for (const Interface& interface : interfaces)
    if (std::strcmp(interface.id, id) == 0 && index-- == 0) return interface.table;
  return nullptr;
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk

// Defines the entry: name (a C identifier), then the five texts of tutti_plugin_info, then the interfaces as {id,
// &table}. A semicolon follows. Its symbol is tutti_plugin_entry, which a shared library exports, and
// tutti_plugin_entry_NAME for applications that link several plugins in: the first is weak there, and unused.
#define TUTTI_PLUGIN(name, ID, VERSION, VENDOR, LICENSE, SUMMARY, ...)                                            \
  namespace {                                                                                                     \
  const tutti_plugin_info tutti_info_##name{sizeof(tutti_plugin_info), 0, ID, VERSION, VENDOR, LICENSE, SUMMARY}; \
  tutti_status tutti_init_##name(const tutti_host* given) { return ::tutti::sdk::start(given, ID); }              \
  const void* tutti_interface_##name(const char* id, uint32_t index) {                                            \
    return ::tutti::sdk::find_interface({__VA_ARGS__}, id, index);                                                \
  }                                                                                                               \
  }                                                                                                               \
  extern "C" __attribute__((visibility("hidden"))) const tutti_plugin_entry_table tutti_plugin_entry_##name;      \
  const tutti_plugin_entry_table tutti_plugin_entry_##name{sizeof(tutti_plugin_entry_table),                      \
                                                           TUTTI_ABI_MAJOR,                                       \
                                                           TUTTI_ABI_MINOR,                                       \
                                                           0,                                                     \
                                                           &tutti_info_##name,                                    \
                                                           tutti_init_##name,                                     \
                                                           tutti_interface_##name};                               \
  extern "C" TUTTI_EXPORT __attribute__((weak, alias("tutti_plugin_entry_" #name)))                               \
  const tutti_plugin_entry_table tutti_plugin_entry
