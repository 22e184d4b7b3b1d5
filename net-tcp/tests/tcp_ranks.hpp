// SPDX-License-Identifier: Apache-2.0
//
// Ranks over net-tcp.
#pragma once

#include <tutti/sdk/transport_ranks.hpp>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_net_tcp;

namespace tutti_test {

inline const tutti_plugin_entry_table& plugin_under_test() { return tutti_plugin_entry_net_tcp; }

}  // namespace tutti_test
