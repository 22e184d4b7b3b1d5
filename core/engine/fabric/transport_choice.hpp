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

// The transport over `inner` that the plugin "checksum" makes (TUTTI_CHECKSUM). Throws Failure.
const tutti_transport* with_checksums(const tutti_transport* inner);

}  // namespace tutti::core
