// SPDX-License-Identifier: Apache-2.0
//
// The network interfaces of this host and their IP addresses.
#pragma once

#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <memory>
#include <string>
#include <tutti/sdk/plugin.hpp>
#include <vector>

namespace tutti::sdk {
inline namespace TUTTI_SDK_NAMESPACE {

// An interface with one of its addresses. An interface without IP addresses has entries with is_ip false.
struct InterfaceAddress {
  std::string interface;
  unsigned flags = 0;  // IFF_UP ...
  bool is_ip = false;
  std::array<uint8_t, 16> ip{};  // IPv6; IPv4 addresses are mapped
  uint8_t prefix = 0;            // bits of the subnet: at most 32 for IPv4
};

// In the system's order. Throws Error.
inline std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) throw system_error("cannot list this host's network addresses (getifaddrs)", errno);
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(first, freeifaddrs);
  std::vector<InterfaceAddress> all;
  for (const ifaddrs* i = first; i; i = i->ifa_next) {
    InterfaceAddress& entry = all.emplace_back(InterfaceAddress{i->ifa_name, i->ifa_flags, false, {}, 0});
    const int family = i->ifa_addr ? i->ifa_addr->sa_family : AF_UNSPEC;
    entry.is_ip = family == AF_INET || family == AF_INET6;
    if (!entry.is_ip) continue;
    const size_t offset = family == AF_INET ? offsetof(sockaddr_in, sin_addr) : offsetof(sockaddr_in6, sin6_addr);
    const size_t size = family == AF_INET ? 4 : 16;
    if (family == AF_INET) entry.ip[10] = entry.ip[11] = 0xff;
    std::memcpy(entry.ip.data() + 16 - size, reinterpret_cast<const char*>(i->ifa_addr) + offset, size);
    if (!i->ifa_netmask) continue;
    const auto* mask = reinterpret_cast<const uint8_t*>(i->ifa_netmask) + offset;
    for (size_t k = 0; k < size; ++k) entry.prefix = static_cast<uint8_t>(entry.prefix + std::popcount(mask[k]));
  }
  return all;
}

}  // namespace TUTTI_SDK_NAMESPACE
}  // namespace tutti::sdk
