// SPDX-License-Identifier: Apache-2.0
//
// The addresses at which this process can be reached: listening TCP sockets, bound UDP sockets, listening Unix sockets.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace tutti::conformance::contract {

struct Listener {
  uint64_t inode;       // tells sockets apart
  std::string address;  // "127.0.0.1", "::"; an IPv4 address within IPv6 is written as the IPv4 address
  std::string text;     // "127.0.0.1 (TCP port 4711)"
  uint16_t port = 0;
  bool stream = true;  // TCP or Unix
};
// Over IP.
std::vector<Listener> listeners();
// Unix sockets with an abstract name, which is the address.
std::vector<Listener> unix_listeners();

// A stranger that connects there without a token. By `kind` it is silent, hangs up, or sends 1 to 4096 bytes that mean
// nothing. Ends with the object.
class Stranger {
 public:
  static constexpr uint32_t kinds = 6;
  Stranger(const Listener& at, uint32_t kind, uint64_t seed);
  Stranger(Stranger&& other) noexcept;
  ~Stranger();

 private:
  int socket_ = -1;
};

}  // namespace tutti::conformance::contract
