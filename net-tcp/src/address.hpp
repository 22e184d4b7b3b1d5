// SPDX-License-Identifier: Apache-2.0
//
// Where a rank can be reached: the addresses of this host that the user lets Tutti use, the opaque bytes in which they
// travel to peers, and which of a peer's addresses are worth trying from here, best first.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/sdk/rails.hpp>
#include <vector>

#include "wire.hpp"

namespace tutti::tcp {

inline constexpr size_t kMaxAddresses = 16;

// An IP address. IPv4 uses the first four bytes.
struct IpAddress {
  uint8_t family = 4;  // 4 or 6
  std::array<uint8_t, 16> bytes{};

  size_t size() const { return family == 4 ? 4 : 16; }
  bool is_loopback() const;
  bool is_link_local() const;
  bool in_network(const IpAddress& network, uint32_t prefix) const;  // do the first `prefix` bits agree?
  std::string text() const;
  bool operator==(const IpAddress&) const = default;
  // Throws nothing; false when the text is no address.
  static bool parse(const std::string& text, IpAddress& address);
};

struct LocalAddress {
  IpAddress ip;
  uint32_t prefix = 0;
  std::string interface;
};

// The addresses of this host that `selection` (TUTTI_TCP_INTERFACE's syntax; empty: all) picks, loopback last.
// Link-local IPv6 addresses are left out: their scope means nothing to a peer. Throws sdk::Error when nothing is
// picked.
std::vector<LocalAddress> local_addresses(const std::string& selection);
// The same choice among given addresses.
std::vector<LocalAddress> select_addresses(const std::vector<LocalAddress>& all, const std::string& selection);

// Every interface of this host that has IP addresses, and whether `selection` picks it: what tutti-info --net tells.
std::vector<sdk::RailFacts> interface_facts(const std::string& selection);

// What get_address tells.
struct PeerAddress {
  struct Listener {
    IpAddress ip;
    uint16_t port = 0;
    std::string text() const;
  };
  Mac host{};     // digest of the host key
  Id endpoint{};  // random, so that a port that was reused is noticed
  std::vector<Listener> listeners;

  std::string encode() const;
  // Throws sdk::Error when these bytes are no such address.
  static PeerAddress decode(std::string_view blob);
};

// The listeners of `peer` that can be reached from an endpoint with addresses `own`, in the order to try: loopback
// (only on the same host), the same subnet, then any of a family that we have.
std::vector<PeerAddress::Listener> plausible(const PeerAddress& peer, const std::vector<LocalAddress>& own,
                                             bool same_host);

}  // namespace tutti::tcp
