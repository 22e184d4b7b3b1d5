// SPDX-License-Identifier: Apache-2.0
#include "address.hpp"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>
#include <optional>
#include <tutti/sdk/interfaces.hpp>
#include <tutti/sdk/words.hpp>

namespace tutti::nccl::serve {
namespace {

const sockaddr_in& v4_of(const sockaddr_storage& s) { return reinterpret_cast<const sockaddr_in&>(s); }
const sockaddr_in6& v6_of(const sockaddr_storage& s) { return reinterpret_cast<const sockaddr_in6&>(s); }

bool is_link_local(const Address& address) {
  const auto bytes = address.bytes();
  return address.is_v6() && bytes[0] == 0xfe && (bytes[1] & 0xc0) == 0x80;
}

// `ip`: IPv6; IPv4 addresses are mapped.
Address from_mapped(const std::array<uint8_t, 16>& ip) {
  constexpr std::array<uint8_t, 12> mapped{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  const bool is_v6 = !std::equal(mapped.begin(), mapped.end(), ip.begin());
  std::array<uint8_t, 16> bytes = ip;
  if (!is_v6) std::copy(ip.begin() + mapped.size(), ip.end(), bytes.begin());
  return {is_v6, bytes, 0};
}

}  // namespace

Address::Address(bool is_v6, const std::array<uint8_t, 16>& bytes, uint16_t port) {
  if (is_v6) {
    auto& to = reinterpret_cast<sockaddr_in6&>(storage_);
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(port);
    std::memcpy(&to.sin6_addr, bytes.data(), sizeof to.sin6_addr);
  } else {
    auto& to = reinterpret_cast<sockaddr_in&>(storage_);
    to.sin_family = AF_INET;
    to.sin_port = htons(port);
    std::memcpy(&to.sin_addr, bytes.data(), sizeof to.sin_addr);
  }
}

Address::Address(const std::string& text, const std::string& source) {
  std::array<uint8_t, 16> bytes{};
  for (const bool v6 : {false, true})
    if (inet_pton(v6 ? AF_INET6 : AF_INET, text.c_str(), bytes.data()) == 1) {
      *this = Address(v6, bytes, 0);
      return;
    }
  throw sdk::error(TUTTI_INVALID_ARGUMENT, "{}=\"{}\" is no IP address in digits, as 10.0.0.1 or fd00::1", source,
                   text);
}

Address Address::of_this_host() {
  std::array<std::optional<Address>, 4> best;  // IPv4, IPv6, loopback of both
  for (const sdk::InterfaceAddress& i : sdk::interface_addresses()) {
    if (!i.is_ip || !(i.flags & IFF_UP)) continue;
    const Address address = from_mapped(i.ip);
    if (is_link_local(address)) continue;  // means nothing without the receiver's interface
    auto& place = best[(i.flags & IFF_LOOPBACK ? 2 : 0) + (address.is_v6() ? 1 : 0)];
    if (!place) place = address;
  }
  for (const auto& address : best)
    if (address) return *address;
  throw sdk::error(TUTTI_SYSTEM, "this host has no interface that is up with an IP address");
}

Address Address::local_of(int socket) {
  Address address;
  socklen_t size = sizeof address.storage_;
  if (::getsockname(socket, reinterpret_cast<sockaddr*>(&address.storage_), &size) != 0) return {};
  return address;
}
Address Address::peer_of(int socket) {
  Address address;
  socklen_t size = sizeof address.storage_;
  if (::getpeername(socket, reinterpret_cast<sockaddr*>(&address.storage_), &size) != 0) return {};
  return address;
}

socklen_t Address::size() const { return is_v6() ? sizeof(sockaddr_in6) : sizeof(sockaddr_in); }
std::array<uint8_t, 16> Address::bytes() const {
  std::array<uint8_t, 16> bytes{};
  if (is_v6())
    std::memcpy(bytes.data(), &v6_of(storage_).sin6_addr, 16);
  else
    std::memcpy(bytes.data(), &v4_of(storage_).sin_addr, 4);
  return bytes;
}
uint16_t Address::port() const { return ntohs(is_v6() ? v6_of(storage_).sin6_port : v4_of(storage_).sin_port); }
std::string Address::host() const {
  char text[INET6_ADDRSTRLEN] = "";
  const auto address = bytes();
  inet_ntop(is_v6() ? AF_INET6 : AF_INET, address.data(), text, sizeof text);
  return text;
}
std::string Address::text() const { return fmt::format(fmt::runtime(is_v6() ? "[{}]:{}" : "{}:{}"), host(), port()); }

}  // namespace tutti::nccl::serve
