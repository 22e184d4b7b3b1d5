// SPDX-License-Identifier: Apache-2.0
//
// Where this process can be reached over IP: its listening TCP sockets and its bound UDP sockets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::conformance::contract {

struct Listener {
  uint64_t inode;       // tells sockets apart
  std::string address;  // "127.0.0.1", "::"; an IPv4 address within IPv6 is written as the IPv4 address
  std::string text;     // "127.0.0.1 (TCP port 4711)"
};
std::vector<Listener> listeners();

}  // namespace tutti::conformance::contract
