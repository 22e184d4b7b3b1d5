// SPDX-License-Identifier: Apache-2.0
//
// The addresses of this host that the user allows, and the choice of the peer's addresses to try.
#pragma once

#include <utility>
// Boost 1.74 needs <utility> first.
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <string>
#include <tutti/sdk/interfaces.hpp>
#include <tutti/sdk/rails.hpp>

namespace tutti::tcp {

using IpAddress = boost::asio::ip::address;
using Where = boost::asio::ip::tcp::endpoint;  // an address and a port

inline constexpr size_t kMaxAddresses = 16;

// Between an address and its bytes: IPv6; IPv4 addresses are mapped.
using IpBytes = std::array<uint8_t, 16>;
IpAddress to_address(const IpBytes& bytes);
IpBytes to_bytes(const IpAddress& address);

struct LocalAddress {
  IpAddress ip;
  uint8_t prefix = 0;
  std::string interface;
};

// "10.0.0.1:4711", "[fd00::1]:4711"
std::string text(const Where& where);

// The addresses of this host that `selection` (syntax of TUTTI_TCP_INTERFACE; empty: all) picks, loopback last.
// Link-local IPv6 addresses are left out, because their scope means nothing to a peer. Throws sdk::Error when no
// address is picked; the error calls the selection `source`.
std::vector<LocalAddress> local_addresses(const std::string& selection,
                                          const std::string& source = "TUTTI_TCP_INTERFACE");
// Makes the same choice among given addresses.
std::vector<LocalAddress> select_addresses(const std::vector<LocalAddress>& all, const std::string& selection,
                                           const std::string& source = "TUTTI_TCP_INTERFACE");

// Advice where `plausible` gives no listener of rank `peer`: `own` are the addresses that this endpoint uses, `all`
// those that it could use.
std::string unreachable_advice(const std::vector<Where>& listeners, const std::vector<LocalAddress>& own,
                               const std::vector<LocalAddress>& all, uint32_t peer);
// The addresses of this host that an endpoint can use: of interfaces that are up, not link-local.
std::vector<LocalAddress> usable_addresses();

// Every interface of this host, its IP addresses, and whether `selection` picks them. tutti-info --net prints this.
std::vector<sdk::RailFacts> interface_facts(const std::string& selection);

// The peer's listeners that an endpoint with addresses `own` may reach, in the order to try: loopback (same host only),
// the same subnet, then all others of an address family that this endpoint has.
std::vector<Where> plausible(const std::vector<Where>& listeners, const std::vector<LocalAddress>& own, bool same_host);

}  // namespace tutti::tcp
