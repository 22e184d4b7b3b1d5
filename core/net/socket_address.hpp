// SPDX-License-Identifier: Apache-2.0
//
// Names, addresses and the two ways to open a TCP socket.
#pragma once
#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/base/file_descriptor.hpp>
#include <type_traits>
#include <vector>

#include "base/wire.hpp"

namespace tutti::core {

struct HostPort {
  std::string host;  // a name or an address, IPv6 without brackets
  uint16_t port = 0;
};

// "host", "host:port", "10.0.0.1:80", "::1", "[::1]", "[::1]:80"; port 0: the text has none. Throws
// Failure{TUTTI_INVALID_ARGUMENT}, naming `what` the text comes from.
HostPort parse_address(std::string_view text, const std::string& what);
// The same with a port, before which an IPv6 address needs its brackets.
HostPort parse_host_port(std::string_view text, const std::string& what);
// 1 ... 65535; throws likewise.
uint16_t parse_port(std::string_view text, const std::string& what);

// An IPv4 or IPv6 address with a port.
class SocketAddress {
 public:
  SocketAddress() = default;
  SocketAddress(const sockaddr* address, socklen_t bytes);
  // From 4 or 16 bytes in network order; unspecified from any other number of them.
  static SocketAddress from_bytes(std::string_view bytes, uint16_t port);
  // Unspecified where the socket is not connected.
  static SocketAddress local_of(int socket) { return end_of(socket, ::getsockname); }
  static SocketAddress peer_of(int socket) { return end_of(socket, ::getpeername); }

  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage_); }
  socklen_t size() const { return bytes_; }
  int family() const { return storage_.ss_family; }
  uint16_t port() const;
  std::string bytes() const;  // 4 or 16, network order
  std::string host() const;   // "10.0.0.1", "::1"; "" where it is unspecified
  std::string text() const;   // "10.0.0.1:80", "[::1]:80"
  bool operator==(const SocketAddress& other) const {
    return family() == other.family() && port() == other.port() && bytes() == other.bytes();
  }
  // As port and bytes. An ill one is unspecified once read.
  static void fields(auto& wire, auto& address) {
    uint32_t port = address.port();
    std::string bytes = address.bytes();
    wire(port, RawBytes(bytes));
    if constexpr (!std::is_const_v<std::remove_reference_t<decltype(address)>>)
      address = port > 65535 ? SocketAddress() : from_bytes(bytes, static_cast<uint16_t>(port));
  }

 private:
  static SocketAddress end_of(int socket, int (*name)(int, sockaddr*, socklen_t*));

  sockaddr_storage storage_ = {};
  socklen_t bytes_ = 0;
};

// All addresses of a name. Throws Failure{TUTTI_NOT_FOUND} with the resolver's words.
std::vector<SocketAddress> resolve(const HostPort& place);
// The addresses of this machine's interfaces that are up, by which others may reach it: IPv4, IPv6, loopback last.
std::vector<SocketAddress> own_addresses(uint16_t port);

// Connections made by these functions send small packets only, which pass where large ones are dropped.

// A listening socket, or an empty descriptor with errno set. close-on-exec and non-blocking.
FileDescriptor listen_on(const SocketAddress& address);
// On all interfaces, IPv6 and IPv4 where the machine has both. Port 0: any free one.
FileDescriptor listen_anywhere(uint16_t port);
// Descriptors or memory are used up, which trying again does not change.
bool out_of_resources(int error);
// Why a loopback address cannot be reached, which trying again does not change, and what to do; "" for any other
// address, and while this network namespace's loopback interface is up with it.
std::string dead_loopback(const SocketAddress& address);
// Connects until `limit_ms` has passed. An empty descriptor with `problem` set when that fails; throws Failure when
// there are no descriptors left.
FileDescriptor connect_to(const SocketAddress& address, int limit_ms, std::string& problem);

}  // namespace tutti::core
