// SPDX-License-Identifier: Apache-2.0
//
// The option --nccl-net: a network plugin of NCCL is tested as the transport "nccl:NAME" of the plugin nccl-net.
#pragma once

#include <string>

#include "selection.hpp"

namespace tutti::conformance {

// The variable by which nccl-net and every worker find the network.
inline constexpr const char* nccl_net_variable = "TUTTI_NCCL_NET";

// The transports of the plugin nccl-net begin with it.
inline constexpr const char* nccl_prefix = "nccl:";
// The network's file as the loader finds it; "" where the variable is not set.
std::string nccl_network_file();

// Requires that this process has loaded no plugin yet. Sets the variable, makes the selection's `nccl_net` an absolute
// path where it is a file, and adds the transport to the selection. Throws std::invalid_argument where the network
// cannot be used: no file, no plugin of a version that is hosted, an init that fails or does not return.
void host_nccl_network(Selection& selection);

}  // namespace tutti::conformance
