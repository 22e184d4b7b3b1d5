// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <tutti/plugin/transport.h>

#include <string>
#include <vector>

namespace tutti::core {

// Which transports may be used, by the text of TUTTI_TRANSPORT: "shm,tcp" these, "^chaos,tcp" all but these, "" all.
struct TransportChoice {
  std::vector<const tutti_transport*> transports;
  bool named = false;  // the user wants these: one that cannot serve is an error
};
// Throws Failure saying what is wrong and which transports there are.
TransportChoice choose_transports(const std::string& text);

// The plugins that TUTTI_WRAP lists. Throws Failure unless each is loaded and has wrapper/1.
std::vector<std::string> choose_wrappers(const std::string& text);
// The transport over `inner` that a plugin's wrapper/1 makes. Throws Failure.
const tutti_transport* wrapped(const tutti_transport* inner, const std::string& plugin);

}  // namespace tutti::core
