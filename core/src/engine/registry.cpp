// SPDX-License-Identifier: Apache-2.0
//
// Finding, judging and keeping plugins. A plugin is untrusted until its tables have been looked through: a refusal says
// what was expected and what came.
#include "engine/registry.hpp"

#include <dlfcn.h>
#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <filesystem>
#include <mutex>

#include "engine/host.hpp"
#include "engine/plugin_check.hpp"

namespace tutti {
namespace core {
namespace {

namespace fs = std::filesystem;

constexpr uint32_t most_interfaces = 256;  // of one kind in one plugin

// The folder of this library: plugins lie in tutti/ beside it (and in ../lib/tutti of a build tree's bin).
fs::path library_folder() {
  Dl_info info{};
  if (!dladdr(reinterpret_cast<const void*>(&library_folder), &info) || !info.dli_fname) return {};
  std::error_code ignored;
  return fs::weakly_canonical(info.dli_fname, ignored).parent_path();
}

template <typename Table>
const Table* by_name(const std::vector<const Table*>& tables, const std::string& name) {
  const auto found = std::find_if(tables.begin(), tables.end(), [&](const Table* t) { return name == t->name; });
  return found == tables.end() ? nullptr : *found;
}

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
    const fs::path here = library_folder();
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
    dlerror();
    void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      const char* why = dlerror();
      return refuse(std::move(record), TUTTI_NOT_FOUND,
                    fmt::format("it cannot be loaded: {}", why ? why : "no reason given"), error);
    }
    const auto* entry = static_cast<const tutti_plugin_entry_table*>(dlsym(library, TUTTI_PLUGIN_ENTRY_SYMBOL));
    if (!entry)
      return refuse(std::move(record), TUTTI_NOT_SUPPORTED,
                    "it exports no symbol " TUTTI_PLUGIN_ENTRY_SYMBOL ": it is no Tutti plugin", error);
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
    std::vector<const tutti_transport*> transports;
    std::vector<const tutti_algorithm*> algorithms;
    std::string reason = collect(entry, TUTTI_TRANSPORT_ID, transports_, transports);
    if (reason.empty()) reason = collect(entry, TUTTI_ALGORITHM_ID, algorithms_, algorithms);
    std::vector<DeviceTables> devices;
    if (reason.empty()) reason = collect_devices(entry, devices);
    if (!reason.empty()) {
      entry->deinit();
      return refuse(std::move(record), TUTTI_NOT_SUPPORTED, reason, error);
    }
    for (const auto* t : transports) record.transports.emplace_back(t->name);
    for (const auto* a : algorithms) record.algorithms.emplace_back(a->name);
    for (const DeviceTables& d : devices) record.devices.emplace_back(d.memory->name);
    keep(transports_, transports);
    keep(algorithms_, algorithms);
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

  std::recursive_mutex mutex;  // a plugin's init may ask for other plugins, or register one
  std::vector<PluginRecord> records_;
  std::vector<const tutti_transport*> transports_;
  std::vector<const tutti_algorithm*> algorithms_;
  std::vector<DeviceTables> devices_;

 private:
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

  template <typename Table>
  static std::string collect(const tutti_plugin_entry_table* entry, const char* id,
                             const std::vector<const Table*>& known, std::vector<const Table*>& found) {
    for (uint32_t i = 0;; ++i) {
      const auto* table = static_cast<const Table*>(entry->get_interface(id, i));
      if (!table) return {};
      if (i == most_interfaces) return fmt::format("it offers more than {} interfaces {}", most_interfaces, id);
      if (auto reason = check_interface(table); !reason.empty()) return reason;
      if (by_name(known, table->name) || by_name(found, table->name))
        return fmt::format("the name {} of its {} is taken", table->name, id);
      found.push_back(table);
    }
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
  static void keep(std::vector<const Table*>& all, const std::vector<const Table*>& more) {
    all.insert(all.end(), more.begin(), more.end());
    std::sort(all.begin(), all.end(), [](const Table* a, const Table* b) { return std::string(a->name) < b->name; });
  }

  bool searched_ = false;
  std::vector<std::pair<std::string, const tutti_plugin_entry_table*>> entries_;
};

template <typename Table>
const Table* find(const std::vector<const Table*>& tables, const std::vector<PluginRecord>& records, const char* kind,
                  const std::string& name, std::string* error) {
  if (const Table* table = by_name(tables, name)) return table;
  if (!error) return nullptr;
  std::string known;
  for (const Table* table : tables) known += (known.empty() ? "" : ", ") + std::string(table->name);
  *error = fmt::format("there is no {} \"{}\"; there are: {}", kind, name, known.empty() ? "none" : known);
  for (const PluginRecord& record : records)
    if (!record.loaded) *error += fmt::format("; refused: {} ({})", record.path, record.reason);
  return nullptr;
}

}  // namespace

const void* registry_interface(const char* plugin, const char* id) {
  Registry& registry = Registry::instance();
  const std::lock_guard lock(registry.mutex);
  return registry.interface_of(plugin, id);
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
std::vector<const tutti_transport*> list_transports() { return Held().registry.transports_; }
std::vector<const tutti_algorithm*> list_algorithms() { return Held().registry.algorithms_; }
std::vector<DeviceTables> list_devices() { return Held().registry.devices_; }

tutti_status load_plugin(const std::string& path, std::string* error) {
  return Held().registry.load(path, true, error);
}

const tutti_transport* find_transport(const std::string& name, std::string* error) {
  const Held held;
  return core::find(held.registry.transports_, held.registry.records_, "transport", name, error);
}
const tutti_algorithm* find_algorithm(const std::string& name, std::string* error) {
  const Held held;
  return core::find(held.registry.algorithms_, held.registry.records_, "algorithm", name, error);
}

}  // namespace tutti
