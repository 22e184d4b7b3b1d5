// SPDX-License-Identifier: Apache-2.0
//
// The plugin as the core would see it: through its entry table, with a setting.
#pragma once

#include <tutti/plugin/algorithm.h>
#include <tutti/plugin/entry.h>

#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <vector>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_import;

namespace tutti::test {

inline std::string import_setting, import_error, import_warning;

// The plugin's algorithms for TUTTI_IMPORT=setting; none and import_error where it refuses.
inline std::vector<const tutti_algorithm*> import(const std::string& setting) {
  static const tutti_host host = [] {
    tutti_host table{};
    table.struct_size = sizeof table;
    table.abi_major = TUTTI_ABI_MAJOR;
    table.set_error = [](void*, tutti_status, const char* text) { import_error = text; };
    table.get_config = [](void*, const char* key) {
      return key == std::string("TUTTI_IMPORT") ? import_setting.c_str() : nullptr;
    };
    table.log = [](void*, const tutti_log_record* record) {
      if (record->level == TUTTI_LOG_WARN) import_warning = record->text;
    };
    return table;
  }();
  import_setting = setting;
  import_error.clear();
  import_warning.clear();
  std::vector<const tutti_algorithm*> all;
  if (tutti_plugin_entry_import.init(&host) != TUTTI_OK) return all;
  for (uint32_t i = 0; const void* table = tutti_plugin_entry_import.get_interface(TUTTI_ALGORITHM_ID, i); ++i)
    all.push_back(static_cast<const tutti_algorithm*>(table));
  return all;
}

inline std::string content(const std::string& file) {
  std::ostringstream text;
  text << std::ifstream(file, std::ios::binary).rdbuf();
  return text.str();
}

// A file in the folder for tests, which a later one of the same name replaces.
inline std::string write_plan(const std::string& name, const std::string& text) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "tutti-import";
  std::filesystem::create_directories(folder);
  const std::filesystem::path file = folder / name;
  std::ofstream(file, std::ios::binary) << text;
  return file.string();
}

}  // namespace tutti::test
