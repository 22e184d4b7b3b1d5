// SPDX-License-Identifier: Apache-2.0
//
// Where things are on this host, as the system tells in /sys; -1: it does not.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tutti::core {

// The NUMA node that has all processors which this thread may use.
int32_t numa_of_process();
// The NUMA node of a PCI device, "0000:3b:00.0".
int32_t numa_of_pci(const std::string& address);
// Is it in a list of the system's, "0-3,8"? Anything that is no list has nothing.
bool is_in_list(std::string_view list, uint32_t number);

}  // namespace tutti::core
