// SPDX-License-Identifier: Apache-2.0
#include "settings.hpp"

#include <unistd.h>

#include <string>
#include <string_view>

#include "loaded_mpi.hpp"

namespace tutti::mpi {
namespace {

constexpr std::string_view our_prefix = "TUTTI_MPI_";

[[noreturn]] void refuse(std::string_view entry, const std::string& expected) {
  stop("the setting \"" + std::string(entry.substr(0, 100)) + "\": expected " + expected);
}

Settings read() {
  Settings settings;
  const struct {
    std::string_view name;
    bool& value;
  } known[] = {{"REQUIRE", settings.require}, {"REPORT", settings.report}};
  for (char** entry = environ; entry && *entry; ++entry) {
    std::string_view text = *entry;
    if (!text.starts_with(our_prefix)) continue;
    text.remove_prefix(our_prefix.size());
    const size_t equals = text.find('=');
    const std::string_view name = text.substr(0, equals), value = text.substr(equals + 1);
    bool found = false;
    for (const auto& one : known) {
      if (one.name != name) continue;
      found = true;
      if (value != "0" && value != "1") refuse(*entry, "0 or 1");
      one.value = value == "1";
    }
    if (!found) refuse(*entry, "TUTTI_MPI_REQUIRE or TUTTI_MPI_REPORT; there is no other setting TUTTI_MPI_*");
  }
  return settings;
}

}  // namespace

const Settings& settings() {
  static const Settings made = read();
  return made;
}

}  // namespace tutti::mpi
