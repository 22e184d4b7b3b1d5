// SPDX-License-Identifier: Apache-2.0
//
// The plugin "mutants": a transport, an algorithm or a device with the fault that TUTTI_MUTANT names, and faults of the
// entry table itself. Without TUTTI_MUTANT it is whole.
#include <fcntl.h>
#include <tutti/plugin/test_settings.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <string>

#include "mutant.hpp"

namespace tutti::mutants {

std::string_view fault() {
  static const char* const name = std::getenv("TUTTI_MUTANT");
  return name ? name : "";
}

void reached() {
  static std::atomic<bool> told{false};
  if (told.exchange(true)) return;
  const char* path = std::getenv("TUTTI_MUTANT_REACHED");
  if (!path) return;
  const int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t n = write(fd, "reached", 7);
  close(fd);
}

namespace {

const tutti_transport* transport() {
  static const tutti_transport* const table = []() -> const tutti_transport* {
    if (const tutti_transport* railed = railed_transport()) return railed;
    if (const tutti_transport* with_device = device_memory_transport()) return with_device;
    if (const tutti_transport* with_shares = mapped_transport()) return with_shares;
    std::unique_ptr<sdk::Interposer> made;
    for (const auto maker : {make_transfer_mutant, make_endpoint_mutant, make_view_mutant, make_number_mutant})
      if (!made) made = maker(fault());
    if (!made) made = std::make_unique<Mutant>();
    if (fault() != "draft-stamp" && fault() != "half-a-pair") return &made.release()->table();
    auto* copy = new tutti_transport(made.release()->table());
    if (fault() == "draft-stamp") copy->reserved = 0x27c65bef, reached();
    if (fault() == "half-a-pair") copy->deregister_memory = nullptr, reached();
    return copy;
  }();
  return table;
}

// The healthy plugin below; "": the mutant has none.
std::string mutated() { return sdk::config("TUTTI_MUTANT_OVER").value_or(""); }
bool is_toy(const std::string& over) { return over.starts_with("toy-"); }

// Of shm.
const tutti_test_settings* test_settings() {
  if (const std::string over = mutated(); !over.empty() && over != "shm") return nullptr;
  if (fault() != "setting-without-limit") return "TUTTI_SHM_SLOTS 1 8 1\n";
  return reached(), "TUTTI_SHM_SLOTS 1 7 1\n";
}

tutti_status init(const tutti_host* host) {
  sdk::host = host;
  sdk::plugin_id = "mutants";
  const std::string over = mutated();
  return is_toy(over) ? init_draft_mutants(over) : tutti_status{TUTTI_OK};
}

const void* get_interface(const char* id, uint32_t index) {
  const bool is_transport = std::strcmp(id, TUTTI_TRANSPORT_ID) == 0;
  const bool is_algorithm = std::strcmp(id, TUTTI_ALGORITHM_ID) == 0;
  if (fault() == "any-id" && !is_transport && !is_algorithm) return reached(), transport();
  if (fault() == "endless" && is_transport && index > 0) reached(), index = 0;
  if (index > 0) return nullptr;
  const std::string over = mutated();
  if (over == "simulated") return device_mutant(id);
  if (is_toy(over)) return draft_mutant(id);
  if (std::strcmp(id, TUTTI_TEST_SETTINGS_ID) == 0) return test_settings();
  return is_transport ? static_cast<const void*>(transport()) : is_algorithm ? algorithm_mutant() : nullptr;
}

tutti_plugin_info info{sizeof info, 0, "mutants", "1.0.0", "Tutti", "Apache-2.0", "deliberately broken plugins"};

}  // namespace
}  // namespace tutti::mutants

extern "C" TUTTI_EXPORT tutti_plugin_entry_table tutti_plugin_entry;
TUTTI_EXPORT tutti_plugin_entry_table tutti_plugin_entry{
    sizeof(tutti_plugin_entry_table), TUTTI_ABI_MAJOR, TUTTI_ABI_MINOR, 0, &tutti::mutants::info, tutti::mutants::init,
    tutti::mutants::get_interface};

namespace tutti::mutants {
namespace {

// Faults of what is looked at before any function is called.
__attribute__((constructor)) void break_entry() {
  if (fault() == "no-license") info.license = nullptr, reached();
  if (fault() == "upper-case-id") info.id = "Mutants", reached();
  if (fault() == "exports-more") reached();
}

}  // namespace
}  // namespace tutti::mutants
