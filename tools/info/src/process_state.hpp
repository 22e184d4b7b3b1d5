// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

namespace info {

enum class ProcessState { running, stopped, gone, elsewhere };

// The state of a process. `host` identifies the host and namespace in which `pid` is valid; `start` tells a later
// process of that number apart. Elsewhere: on another host, or in a container of which this one sees nothing.
ProcessState process_state(uint64_t host, uint64_t pid, uint64_t start);
const char* process_state_name(ProcessState state);
// This process's own mark.
uint64_t this_host();

}  // namespace info
