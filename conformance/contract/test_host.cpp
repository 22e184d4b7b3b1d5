// SPDX-License-Identifier: Apache-2.0
#include "test_host.hpp"

#include <dlfcn.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>

namespace tutti::conformance::contract {
namespace {

// The call that this thread is in.
struct CallState {
  const char* function = nullptr;
  bool control = false;
  bool told = false;
  tutti_status told_status = TUTTI_OK;
  std::string told_text;
};
thread_local CallState state;

struct Host {
  std::mutex mutex;
  std::optional<Broken> complaint;  // the first
  std::string source;
  std::vector<Companion> companions;
  std::map<std::string, const tutti_plugin_entry_table*> entries;  // by path

  void complain(const char* clause, std::string text) {
    const std::lock_guard lock(mutex);
    if (!complaint) complaint.emplace(clause, std::move(text));
  }
};
Host& the_host() {
  static auto* host = new Host();
  return *host;
}

std::string where() { return state.function ? std::string(" (during ") + state.function + ")" : ""; }

void check_source(const char* what, const char* source) {
  Host& host = the_host();
  std::string expected;
  {
    const std::lock_guard lock(host.mutex);
    expected = host.source;
  }
  if (!source || (!expected.empty() && expected != source && source != std::string("mutant")))
    for (const Companion& companion : host.companions)
      if (source && companion.id == source) return;
  if (!source)
    host.complain("E-7", fmt::format("{} has no source; expected the plugin's id \"{}\"{}", what, expected, where()));
}

void on_log(void*, const tutti_log_record* record) {
  Host& host = the_host();
  if (const SizeVerdict verdict = judge_size(record); verdict.status < 0)
    return host.complain("E-7", fmt::format("a log record whose size is wrong: {}{}", verdict.text, where()));
  check_source("a log record", record->source);
  if (record->level < TUTTI_LOG_ERROR || record->level > TUTTI_LOG_TRACE)
    host.complain("E-7",
                  fmt::format("a log record of level {}; there are 1 (error) to 5 (trace){}", record->level, where()));
  if (!record->text)
    host.complain("E-7", fmt::format("a log record without text{}", where()));
  else if (const size_t n = std::strlen(record->text); n > 0 && record->text[n - 1] == '\n')
    host.complain("E-7", fmt::format("the log text \"{}\" ends with a newline, which the host adds itself{}",
                                     std::string(record->text, n - 1), where()));
  if (std::getenv("TUTTI_CONFORM_VERBOSE") && record->text)
    std::fprintf(stderr, "%s: %s\n", record->source ? record->source : "?", record->text);
}

const char* on_get_config(void*, const char* key) { return key ? std::getenv(key) : nullptr; }

void on_set_error(void*, tutti_status status, const char* text) {
  if (!state.function)
    return the_host().complain(
        "E-5",
        fmt::format("set_error(\"{}\") came from a thread that is in no call: the error text belongs to the thread "
                    "whose call returns the error",
                    text ? text : ""));
  state.told = true;
  state.told_status = status;
  state.told_text = text ? text : "";
}

const char* on_get_error(void*) { return state.told_text.c_str(); }

uint32_t on_memory_kind(void*, const char* name) {
  const std::string_view device = name ? name : "";
  if (device == "host") return TUTTI_MEMORY_HOST;
  if (device == "cuda") return TUTTI_MEMORY_CUDA;
  return device == "simulated" ? uint32_t{TUTTI_MEMORY_SIMULATED} : uint32_t{TUTTI_FIRST_NAMED_MEMORY};
}

void require_control(const std::string& what) {
  if (state.function && state.control) return;
  the_host().complain(
      "E-6", fmt::format("{} was called {}; it is [control]: look interfaces up in init, query or an "
                         "open function and keep what you got",
                         what,
                         state.function ? fmt::format("during {}, which is no [control] function", state.function)
                                        : "by a thread that is in no call"));
}

const void* interface_of(const Companion& companion, const char* id, uint32_t index = 0) {
  Host& host = the_host();
  const tutti_plugin_entry_table* entry = load_entry(companion.path);
  {
    const std::lock_guard lock(host.mutex);
    if (!host.entries.try_emplace(companion.path, entry).second) return entry->get_interface(id, index);
  }
  if (entry->init(test_host()) < 0) return nullptr;
  return entry->get_interface(id, index);
}

const void* on_find_interface(void*, const char* plugin, const char* id) {
  require_control(fmt::format("find_interface(\"{}\", \"{}\")", plugin ? plugin : "", id ? id : ""));
  if (!plugin || !id) return nullptr;
  for (const Companion& companion : the_host().companions)
    if (companion.id == plugin) return interface_of(companion, id);
  return nullptr;
}

const void* on_list_interface(void*, const char* id, uint32_t index) {
  require_control(fmt::format("list_interface(\"{}\")", id ? id : ""));
  if (!id) return nullptr;
  for (const Companion& companion : the_host().companions)
    for (uint32_t i = 0; const void* table = interface_of(companion, id, i); ++i)
      if (index-- == 0) return table;
  return nullptr;
}

}  // namespace

std::string status_text(int32_t status) {
  constexpr const char* names[] = {"TUTTI_OK",          "TUTTI_INVALID_ARGUMENT", "TUTTI_NOT_SUPPORTED",
                                   "TUTTI_NOT_FOUND",   "TUTTI_NO_RESOURCES",     "TUTTI_TIMEOUT",
                                   "TUTTI_PEER_FAILED", "TUTTI_ABORTED",          "TUTTI_MISMATCH",
                                   "TUTTI_SYSTEM",      "TUTTI_INVALID_USAGE",    "TUTTI_INTERNAL"};
  if (status == TUTTI_AGAIN) return "TUTTI_AGAIN (1)";
  if (status > 0 || status < TUTTI_INTERNAL) return fmt::format("{}, which is no status", status);
  return fmt::format("{} ({})", names[-status], status);
}

const tutti_host* test_host() {
  static const tutti_host table{sizeof(tutti_host),
                                TUTTI_ABI_MAJOR,
                                TUTTI_ABI_MINOR,
                                0,
                                nullptr,
                                on_log,
                                on_get_config,
                                on_set_error,
                                on_find_interface,
                                on_memory_kind,
                                on_get_error,
                                on_list_interface};
  return &table;
}

void set_companions(std::vector<Companion> companions) { the_host().companions = std::move(companions); }
const std::vector<Companion>& companions() { return the_host().companions; }
void expect_source(std::string id) {
  const std::lock_guard lock(the_host().mutex);
  the_host().source = std::move(id);
}
const std::string& last_error() { return state.told_text; }

Call::Call(const char* function, bool control) {
  state.function = function;
  state.control = control;
  state.told = false;
  state.told_text.clear();
  in_call(function);
}
Call::~Call() {
  in_call(nullptr);
  state.function = nullptr;
}

tutti_status Call::returned(tutti_status status) {
  const char* function = state.function;
  in_call(nullptr);
  state.function = nullptr;
  check_host();
  if (status > TUTTI_AGAIN || status < TUTTI_INTERNAL) broken("E-5", "{} returned {}", function, status_text(status));
  if (status >= 0) return status;
  if (!state.told || state.told_text.empty())
    broken("E-5", "{} returned {} without {}: call host->set_error(code, text) first, in the same thread", function,
           status_text(status), state.told ? "a text" : "telling set_error why");
  if (state.told_status != status)
    broken("E-5", "{} returned {}, but told set_error {} (\"{}\")", function, status_text(status),
           status_text(state.told_status), state.told_text);
  return status;
}

void check_host() {
  Host& host = the_host();
  const std::lock_guard lock(host.mutex);
  if (!host.complaint) return;
  Broken complaint = std::move(*host.complaint);
  host.complaint.reset();
  throw complaint;
}

const tutti_plugin_entry_table* load_entry(const std::string& path) {
  dlerror();
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (!library) {
    const char* why = dlerror();
    throw std::runtime_error(fmt::format("the plugin {} cannot be loaded: {}", path, why ? why : "no reason given"));
  }
  const auto* entry = static_cast<const tutti_plugin_entry_table*>(dlsym(library, TUTTI_PLUGIN_ENTRY_SYMBOL));
  require(entry != nullptr, "E-1", "{} exports no " TUTTI_PLUGIN_ENTRY_SYMBOL, path);
  return entry;
}

const tutti_plugin_entry_table* load_plugin_under_test(const std::string& path) {
  const tutti_plugin_entry_table* entry = load_entry(path);
  require_size(entry, "E-2", "the entry table");
  require(entry->info && entry->init && entry->get_interface, "E-2",
          "the entry table lacks info, init or get_interface");
  if (judge_size(entry->info).status == TUTTI_OK && entry->info->id) expect_source(entry->info->id);
  const tutti_status status = call("init", true, [&] { return entry->init(test_host()); });
  if (status < 0) throw std::runtime_error(fmt::format("init refused: {}: {}", status_text(status), last_error()));
  return entry;
}

}  // namespace tutti::conformance::contract
