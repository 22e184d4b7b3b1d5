// SPDX-License-Identifier: Apache-2.0
//
// Finding, judging and keeping plugins. A plugin is untrusted until its tables have been looked through: a refusal says
// what was expected and what came.
#include "registry/registry.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <tuple>

#include "base/failure.hpp"
#include "registry/host.hpp"
#include "registry/plugin_check.hpp"
#include "registry/plugin_file.hpp"

namespace tutti {
namespace core {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t most_interfaces = 256;  // of one kind in one plugin

// This library, or the program that contains it. Plugins lie in tutti/ beside it (and in ../lib/tutti of a build
// tree's bin).
fs::path library_file() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&library_file), &info) || !info.dli_fname) return {};
  std::error_code ignored;
  return fs::weakly_canonical(info.dli_fname, ignored);
}

template <typename Table>
const Table* by_name(const std::vector<const Table*>& tables, const std::string& name) {
  const auto found = std::find_if(tables.begin(), tables.end(), [&](const Table* t) { return name == t->name; });
  return found == tables.end() ? nullptr : *found;
}

// The interfaces of one kind: those of all plugins, by name, and those of the plugin that is being looked through.
template <typename Table>
struct InterfaceList {
  const char* id;
  const char* word;
  std::vector<const Table*> all, fresh;
};

class Registry {
 public:
  static Registry& instance() {
    static auto* registry = new Registry();
    return *registry;
  }

  // Called with the mutex held.
  void search() {
    if (searched_) return;
    searched_ = true;
    if (const char* path = host_config("TUTTI_PLUGIN_PATH")) {
      std::string text(path);
      for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find(':', begin), text.size());
        if (end > begin) search_one(text.substr(begin, end - begin), true);
        begin = end + 1;
      }
    }
    const fs::path here = library_file().parent_path();
    for (const fs::path& folder : {here / "tutti", here.parent_path() / "lib" / "tutti"}) {
      std::error_code error;
      if (fs::is_directory(folder, error)) {
        search_one(folder, false);
        break;
      }
    }
  }

  tutti_status load(const std::string& path, bool required, std::string* error) {
    PluginRecord record;
    record.path = path;
    record.required = required;
    std::error_code absent;
    // Without symbolic links: the file that is judged is the file that is loaded.
    const std::string file = fs::canonical(path, absent).string();
    if (absent)
      return refuse(std::move(record), TUTTI_NOT_FOUND, fmt::format("it cannot be loaded: {}", absent.message()),
                    error);
    // A file that is named twice, by TUTTI_PLUGIN_PATH and by a tool's option, is one plugin.
    for (const PluginRecord& other : records_) {
      std::error_code ignored;
      if (other.loaded && fs::equivalent(other.path, file, ignored)) return TUTTI_OK;
    }
    if (const std::string reason = misgiving(file); !reason.empty()) {
      // A job may not notice a missing plugin of a searched folder: it is only slower.
      if (!required) log(TUTTI_LOG_WARN, "plugins", fmt::format("{} is not loaded: {}", path, reason));
      return refuse(std::move(record), TUTTI_NOT_SUPPORTED, reason, error);
    }
    dlerror();
    void* library = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = dlerror();
      return refuse(std::move(record), TUTTI_NOT_FOUND,
                    fmt::format("it cannot be loaded: {}", why ? why : "no reason given"), error);
    }
    const auto* entry = static_cast<const tutti_plugin_entry_table*>(dlsym(library, TUTTI_PLUGIN_ENTRY_SYMBOL));
    if (!entry)
      return refuse(std::move(record), TUTTI_NOT_SUPPORTED,
                    "it exports no symbol " TUTTI_PLUGIN_ENTRY_SYMBOL ": it is not a Tutti plugin", error);
    return add(entry, std::move(record), error);
  }

  tutti_status add(const tutti_plugin_entry_table* entry, PluginRecord record, std::string* error) {
    if (auto reason = check_entry(entry); !reason.empty())
      return refuse(std::move(record), TUTTI_NOT_SUPPORTED, reason, error);
    record.id = entry->info->id;
    record.version = entry->info->version;
    record.vendor = entry->info->vendor;
    record.license = entry->info->license;
    record.summary = entry->info->summary;
    for (const PluginRecord& other : records_)
      if (other.loaded && other.id == record.id) {
        if (!record.required && other.path != record.path)
          return refuse(std::move(record), TUTTI_INVALID_USAGE,
                        fmt::format("its id is taken by {}, which was found first", other.path), error);
        return refuse(std::move(record), TUTTI_INVALID_USAGE, fmt::format("its id is taken by {}", other.path), error);
      }
    take_plugin_error();
    if (const tutti_status status = entry->init(host_table()); status < 0)
      return refuse(std::move(record), status, fmt::format("its init failed: {}", take_plugin_error()), error);
    std::string reason;
    each_kind([&](auto& kind) {
      if (reason.empty()) reason = collect(entry, kind);
    });
    std::vector<DeviceTables> devices;
    if (reason.empty()) reason = collect_devices(entry, devices);
    if (reason.empty()) reason = clash();
    if (!reason.empty()) return refuse(std::move(record), TUTTI_NOT_SUPPORTED, reason, error);
    each_kind([&](auto& kind) {
      for (const auto* table : kind.fresh) name(record, kind, table->name);
      keep(kind);
    });
    for (const DeviceTables& d : devices) record.devices.emplace_back(d.memory->name);
    devices_.insert(devices_.end(), devices.begin(), devices.end());
    std::sort(devices_.begin(), devices_.end(), [](const DeviceTables& a, const DeviceTables& b) {
      return std::string(a.memory->name) < b.memory->name;
    });
    record.loaded = true;
    entries_.emplace_back(record.id, entry);
    records_.push_back(std::move(record));
    return TUTTI_OK;
  }

  const void* interface_of(const std::string& plugin, const char* id) const {
    for (const auto& [name, entry] : entries_)
      if (name == plugin) return entry->get_interface(id, 0);
    return nullptr;
  }

  const void* interface_of(const char* id, uint32_t index) const {
    for (const auto& [name, entry] : entries_)
      for (uint32_t own = 0; const void* table = entry->get_interface(id, own); ++own)
        if (index-- == 0) return table;
    return nullptr;
  }

  std::recursive_mutex mutex;  // a plugin's init may ask for other plugins, or register one
  std::vector<PluginRecord> records_;
  std::vector<DeviceTables> devices_;
  template <typename Table>
  InterfaceList<Table>& kind() {
    return std::get<InterfaceList<Table>>(kinds_);
  }

 private:
  // Why the code of a file is not to be run; "" when it may be.
  static std::string misgiving(const std::string& file) try {
    std::string reason = distrust(file, trusted_writers(library_file().string()));
    return reason.empty() ? defect(file) : reason;
  } catch (const Failure& failure) {
    return failure.text;
  }

  tutti_status refuse(PluginRecord record, tutti_status status, const std::string& reason, std::string* error) {
    record.reason = reason;
    if (error) *error = fmt::format("plugin {} is refused: {}", record.path, reason);
    records_.push_back(std::move(record));
    return status;
  }

  void search_one(const fs::path& path, bool named) {
    std::error_code error;
    if (!fs::is_directory(path, error)) {
      load(path.string(), named, nullptr);
      return;
    }
    std::vector<std::string> files;
    for (const auto& file : fs::directory_iterator(path, error)) {
      const std::string name = file.path().filename().string();
      if (name.starts_with("libtutti-") && name.ends_with(".so")) files.push_back(file.path().string());
    }
    std::sort(files.begin(), files.end());
    for (const std::string& file : files) load(file, false, nullptr);
  }

  template <typename Visit>
  void each_kind(Visit&& visit) {
    std::apply([&](auto&... kinds) { (visit(kinds), ...); }, kinds_);
  }

  static void name(PluginRecord& record, const InterfaceList<tutti_transport>&, const char* name) {
    record.transports.emplace_back(name);
  }
  static void name(PluginRecord& record, const InterfaceList<tutti_algorithm>&, const char* name) {
    record.algorithms.emplace_back(name);
  }
  template <typename Table>
  static void name(PluginRecord& record, const InterfaceList<Table>& kind, const char* name) {
    record.others.push_back(fmt::format("{} {}", kind.id, name));
  }

  template <typename Table>
  static std::string collect(const tutti_plugin_entry_table* entry, InterfaceList<Table>& kind) {
    kind.fresh.clear();
    for (uint32_t i = 0;; ++i) {
      const auto* table = static_cast<const Table*>(entry->get_interface(kind.id, i));
      if (!table) return {};
      if (i == most_interfaces) return fmt::format("it offers more than {} interfaces {}", most_interfaces, kind.id);
      if (auto reason = check_interface(table); !reason.empty()) return reason;
      if (by_name(kind.all, table->name) || by_name(kind.fresh, table->name))
        return fmt::format("the name {} of its {} is taken", table->name, kind.id);
      kind.fresh.push_back(table);
    }
  }

  // TUTTI_ALGO names algorithms and collectives alike.
  std::string clash() {
    for (const auto* one : {&kind<tutti_collective>().all, &kind<tutti_collective>().fresh})
      for (const tutti_collective* collective : *one)
        for (const auto* other : {&kind<tutti_algorithm>().all, &kind<tutti_algorithm>().fresh})
          if (by_name(*other, collective->name))
            return fmt::format("the name {} is that of an algorithm and of a {}", collective->name,
                               TUTTI_COLLECTIVE_ID);
    return {};
  }

  // The index-th executor belongs to the index-th device.
  std::string collect_devices(const tutti_plugin_entry_table* entry, std::vector<DeviceTables>& found) const {
    for (uint32_t i = 0;; ++i) {
      const auto* memory = static_cast<const tutti_device*>(entry->get_interface(TUTTI_DEVICE_ID, i));
      const auto* executor = static_cast<const tutti_executor*>(entry->get_interface(TUTTI_EXECUTOR_ID, i));
      if (!memory && !executor) return {};
      if (!memory || !executor)
        return fmt::format("it offers {} number {} without {}", memory ? TUTTI_DEVICE_ID : TUTTI_EXECUTOR_ID, i,
                           memory ? TUTTI_EXECUTOR_ID : TUTTI_DEVICE_ID);
      if (i == most_interfaces)
        return fmt::format("it offers more than {} interfaces {}", most_interfaces, TUTTI_DEVICE_ID);
      if (auto reason = check_interface(memory); !reason.empty()) return reason;
      if (auto reason = check_interface(executor); !reason.empty()) return reason;
      for (const std::vector<DeviceTables>* known : {&devices_, static_cast<const std::vector<DeviceTables>*>(&found)})
        for (const DeviceTables& other : *known)
          if (std::string(other.memory->name) == memory->name)
            return fmt::format("the name {} of its {} is taken", memory->name, TUTTI_DEVICE_ID);
      found.push_back({memory, executor});
    }
  }

  template <typename Table>
  static void keep(InterfaceList<Table>& kind) {
    kind.all.insert(kind.all.end(), kind.fresh.begin(), kind.fresh.end());
    std::ranges::sort(kind.all, {}, [](const Table* table) { return std::string(table->name); });
  }

  std::tuple<InterfaceList<tutti_transport>, InterfaceList<tutti_algorithm>, InterfaceList<tutti_collective>,
             InterfaceList<tutti_meeting>, InterfaceList<tutti_selector>, InterfaceList<tutti_rma>,
             InterfaceList<tutti_tracer>>
      kinds_{{TUTTI_TRANSPORT_ID, "transport", {}, {}},   {TUTTI_ALGORITHM_ID, "algorithm", {}, {}},
             {TUTTI_COLLECTIVE_ID, "collective", {}, {}}, {TUTTI_MEETING_ID, "meeting", {}, {}},
             {TUTTI_SELECTOR_ID, "selector", {}, {}},     {TUTTI_RMA_ID, "rma", {}, {}},
             {TUTTI_TRACER_ID, "tracer", {}, {}}};
  bool searched_ = false;
  std::vector<std::pair<std::string, const tutti_plugin_entry_table*>> entries_;
};

template <typename Table>
const Table* find(Registry& registry, const std::string& name, std::string* error) {
  const InterfaceList<Table>& kind = registry.kind<Table>();
  if (const Table* table = by_name(kind.all, name)) return table;
  if (!error) return nullptr;
  std::string known;
  for (const Table* table : kind.all) known += (known.empty() ? "" : ", ") + std::string(table->name);
  *error = fmt::format("there is no {} \"{}\"; there are: {}", kind.word, name, known.empty() ? "none" : known);
  for (const PluginRecord& record : registry.records_)
    if (!record.loaded) *error += fmt::format("; refused: {} ({})", record.path, record.reason);
  return nullptr;
}

}  // namespace

const void* registry_interface(const char* plugin, const char* id) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  return registry.interface_of(plugin, id);
}

const void* registry_interface(const char* id, uint32_t index) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  return registry.interface_of(id, index);
}

tutti_status register_static(const tutti_plugin_entry_table* entry, std::string* error) {
  if (!entry) {
    *error = "tutti_plugin_register: the entry table is NULL";
    return TUTTI_INVALID_ARGUMENT;
  }
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  PluginRecord record;
  record.path = "(static)";
  record.required = true;
  return registry.add(entry, std::move(record), error);
}

std::string required_plugin_error() {
  for (const PluginRecord& record : list_plugins())
    if (record.required && !record.loaded) return fmt::format("plugin {} is refused: {}", record.path, record.reason);
  return {};
}

}  // namespace core

namespace {
// The registry, searched and held.
struct Held {
  core::Registry& registry = core::Registry::instance();
  std::lock_guard<std::recursive_mutex> lock{registry.mutex};
  Held() { registry.search(); }
};
}  // namespace

std::vector<PluginRecord> list_plugins() { return Held().registry.records_; }
std::vector<const tutti_transport*> list_transports() { return Held().registry.kind<tutti_transport>().all; }
std::vector<const tutti_algorithm*> list_algorithms() { return Held().registry.kind<tutti_algorithm>().all; }
std::vector<const tutti_collective*> list_collectives() { return Held().registry.kind<tutti_collective>().all; }
std::vector<const tutti_meeting*> list_meetings() { return Held().registry.kind<tutti_meeting>().all; }
std::vector<const tutti_selector*> list_selectors() { return Held().registry.kind<tutti_selector>().all; }
std::vector<const tutti_rma*> list_rmas() { return Held().registry.kind<tutti_rma>().all; }
std::vector<const tutti_tracer*> list_tracers() { return Held().registry.kind<tutti_tracer>().all; }
std::vector<DeviceTables> list_devices() { return Held().registry.devices_; }

tutti_status query_transport(const tutti_transport& transport, tutti_transport_caps* caps) {
  tutti_domain_config config{};
  config.struct_size = sizeof config;
  tutti_domain* domain = nullptr;
  tutti_status status = transport.open_domain(transport.self, &config, &domain);
  if (status < 0) return status;
  status = transport.query(domain, caps);
  transport.close_domain(domain);
  return status;
}

tutti_status load_plugin(const std::string& path, std::string* error) {
  return Held().registry.load(path, true, error);
}

const tutti_transport* find_transport(const std::string& name, std::string* error) {
  return core::find<tutti_transport>(Held().registry, name, error);
}
const tutti_algorithm* find_algorithm(const std::string& name, std::string* error) {
  return core::find<tutti_algorithm>(Held().registry, name, error);
}
const tutti_meeting* find_meeting(const std::string& name, std::string* error) {
  return core::find<tutti_meeting>(Held().registry, name, error);
}
const tutti_selector* find_selector(const std::string& name, std::string* error) {
  return core::find<tutti_selector>(Held().registry, name, error);
}
const tutti_tracer* find_tracer(const std::string& name, std::string* error) {
  return core::find<tutti_tracer>(Held().registry, name, error);
}

}  // namespace tutti
