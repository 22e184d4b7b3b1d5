// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>

namespace tutti::core {

// The identity of a process, also for others that see its number.
struct ProcessIdentity {
  uint64_t host = 0;  // hash of the host's boot and the process's pid namespace: where its number means something
  uint64_t pid = 0;
  uint64_t start = 0;  // field 22 of /proc/PID/stat
};
ProcessIdentity this_process_identity();
// The start of the process of this host that has the number, in the same unit. Nothing: no process has it.
std::optional<uint64_t> process_start(uint64_t pid);

}  // namespace tutti::core
