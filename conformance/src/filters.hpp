// SPDX-License-Identifier: Apache-2.0
//
// Holding a selection against what there is.
#pragma once

#include "selection.hpp"

namespace tutti::conformance {

// Loads the selection's plugins and checks every name in it; "all" becomes the empty list. Throws std::invalid_argument
// that names what is unknown and what is known.
void check_selection(Selection& selection);

// Is the list empty or does it name the value?
template <typename Value, typename Wanted>
bool wants(const std::vector<Value>& list, const Wanted& value) {
  if (list.empty()) return true;
  for (const Value& one : list)
    if (one == value) return true;
  return false;
}

// The name in --transport for devices of one host that read each other's memory, without a transport.
inline constexpr const char* mapped_way = "mapped";

// The transports that a name in Selection::transports stands for: "shm+tcp" -> shm, tcp.
std::vector<std::string> transports_of(const std::string& mix);

}  // namespace tutti::conformance
