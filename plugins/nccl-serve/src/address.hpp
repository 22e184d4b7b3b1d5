// SPDX-License-Identifier: Apache-2.0
//
// Addresses of sockets: IPv4 and IPv6.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstdint>
#include <string>

namespace tutti::nccl::serve {

class Address {
 public:
  Address() = default;
  // 4 or 16 bytes in network order, as `is_v6` says.
  Address(bool is_v6, const std::array<uint8_t, 16>& bytes, uint16_t port);
  // An address in digits. Throws sdk::Error, which names `source`.
  Address(const std::string& text, const std::string& source);
  // That by which others reach this host: the first of an interface that is up, IPv4 before IPv6 and loopback last.
  static Address of_this_host();
  static Address local_of(int socket);
  static Address peer_of(int socket);

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const;
  bool is_v6() const { return storage_.ss_family == AF_INET6; }
  std::array<uint8_t, 16> bytes() const;
  uint16_t port() const;
  std::string host() const;  // "10.0.0.1"
  std::string text() const;  // "10.0.0.1:80", "[::1]:80"
  bool operator==(const Address& other) const {
    return is_v6() == other.is_v6() && port() == other.port() && bytes() == other.bytes();
  }

 private:
  sockaddr_storage storage_{};
};

}  // namespace tutti::nccl::serve
