// SPDX-License-Identifier: Apache-2.0
#include "record/process_identity.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>
#include <unistd.h>

#include <charconv>
#include <fstream>
#include <string>
#include <tutti/base/host_identity.hpp>

#include "base/hash.hpp"
#include "registry/host.hpp"

namespace tutti::core {

std::optional<uint64_t> process_start(uint64_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string line;
  if (!std::getline(file, line)) return std::nullopt;
  // The second field is the program's name in parentheses and may hold anything: count from its end.
  const size_t name_end = line.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  size_t at = name_end + 2;
  for (int field = 3; field < 22; ++field) {
    at = line.find(' ', at);
    if (at == std::string::npos) return std::nullopt;
    ++at;
  }
  uint64_t start = 0;
  std::from_chars(line.data() + at, line.data() + line.size(), start);
  return start;
}

ProcessIdentity this_process_identity() {
  static const uint64_t host = hash_text(host_space("pid"));
  const auto pid = static_cast<uint64_t>(getpid());
  return {host, pid, process_start(pid).value_or(0)};
}

}  // namespace tutti::core

namespace tutti {

HostIdentity host_identity() {
  const char* const given = core::host_config("TUTTI_HOST_ID");
  return {host_key(given), given && *given, core::this_process_identity().host};
}

}  // namespace tutti
