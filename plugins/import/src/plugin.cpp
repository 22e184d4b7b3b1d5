// SPDX-License-Identifier: Apache-2.0
//
// The plugin "import": plans of MSCCL and MSCCL++ as algorithms. It offers those that TUTTI_IMPORT names.
#include <tutti/sdk/plugin.hpp>

#include "files.hpp"

namespace {

namespace sdk = tutti::sdk;

std::vector<const tutti_algorithm*>& algorithms() {
  static auto* const all = new std::vector<const tutti_algorithm*>();
  return *all;
}

const tutti_plugin_info info{
    sizeof(tutti_plugin_info), 0, "import", "0.1.0", "Tutti", "Apache-2.0", "plans of MSCCL and MSCCL++ as algorithms"};

tutti_status init(const tutti_host* given) {
  if (const tutti_status status = sdk::start(given, info.id); status != TUTTI_OK) return status;
  return sdk::guard([] {
    try {
      algorithms() = tutti::plans::import_plans(sdk::config("TUTTI_IMPORT").value_or(""));
    } catch (const sdk::Error& error) {
      // A job that names none of the plans would run without them and say nothing.
      sdk::log(TUTTI_LOG_WARN, std::string(error.what()) + "; no plan is imported");
      throw;
    }
  });
}

const void* get_interface(const char* id, uint32_t index) {
  const bool mine = std::strcmp(id, TUTTI_ALGORITHM_ID) == 0;
  return mine && index < algorithms().size() ? algorithms()[index] : nullptr;
}

}  // namespace

extern "C" __attribute__((visibility("hidden"))) const tutti_plugin_entry_table tutti_plugin_entry_import;
const tutti_plugin_entry_table tutti_plugin_entry_import{
    sizeof(tutti_plugin_entry_table), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, 0, &info, init, get_interface};
extern "C" TUTTI_EXPORT __attribute__((weak, alias("tutti_plugin_entry_import")))
const tutti_plugin_entry_table tutti_plugin_entry;
