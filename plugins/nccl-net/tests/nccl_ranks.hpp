// SPDX-License-Identifier: Apache-2.0
//
// Ranks over a network plugin of NCCL, which a test chooses by setting().
#pragma once

#include <cstdlib>
#include <tutti/sdk/transport_ranks.hpp>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_nccl_net;

namespace tutti_test {

inline const tutti_plugin_entry_table& plugin_under_test() { return tutti_plugin_entry_nccl_net; }

// Before the first use of table() in a test.
inline void use_network(const std::string& file, const std::map<std::string, std::string>& more = {}) {
  host().settings = more;
  host().settings["TUTTI_NCCL_NET"] = file;
}

inline bool says(const std::string& text, const std::string& part) { return text.find(part) != text.npos; }

// The rule that the plugin of tests/faulty_network.cpp breaks from now on; "none": none.
inline void choose_fault(const std::string& fault) { setenv("TUTTI_MUTANT", ("nccl-" + fault).c_str(), 1); }
inline void use_fault(const std::string& fault) {
  choose_fault(fault);
  use_network(FAULTY);
}

}  // namespace tutti_test
