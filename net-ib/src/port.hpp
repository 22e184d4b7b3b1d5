// SPDX-License-Identifier: Apache-2.0
//
// The verbs ports of this host: what they are, which of them this rank uses and why, what is told of them to peers, and
// which port and GID of ours meets which of a peer's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <tutti/sdk/rails.hpp>
#include <vector>

#include "settings.hpp"
#include "wire.hpp"

namespace tutti::ib {

// Ports beyond this, GIDs of a port beyond that, are not told to peers.
inline constexpr size_t kMaxGids = 16;

struct Gid {
  RawGid raw{};
  uint32_t index = 0;  // in the port's table
  bool roce_v2 = false;
  uint32_t prefix = 64;   // bits of the subnet
  std::string interface;  // network interface; a tagged one is an interface of its own

  bool is_v4() const;  // an IPv4 address in IPv6's clothes
  bool is_link_local() const;
  std::string text() const;
  bool same_subnet(const RawGid& other) const;
};

struct Port {
  std::string device;
  uint32_t port = 0;
  bool infiniband = false;  // else Ethernet: RoCE
  uint32_t lid = 0;
  uint8_t mtu = 0;  // ibv_mtu, active
  bool up = false;
  std::string state;  // in words
  uint32_t megabits = 0;
  int numa = -1;             // -1: not told
  uint32_t shared_hops = 0;  // of the way from the PCI root to it, with the way to TUTTI_IB_NEAR's device
  std::vector<Gid> gids;
  std::string no_dma_buf;  // why its device can register no memory of other devices; "": it can
  // The choice.
  bool chosen = false;
  std::string why;

  // May this GID be used: of the right type, and TUTTI_IB_GID_INDEX's if that is set?
  bool offers(const Gid& gid, const Settings& settings) const {
    return settings.gid_index ? gid.index == *settings.gid_index : infiniband || gid.roce_v2;
  }
  std::string name() const { return device + ":" + std::to_string(port); }
};

// All ports of all devices, in the order of the verbs library. Throws sdk::Error when there is no verbs device or one
// cannot be asked.
std::vector<Port> find_ports();
// Marks at most settings.rails ports as chosen, and says of each why or why not: up, admitted by the filter, with a
// usable GID, and nearest: in PCI hops to TUTTI_IB_NEAR's device where any of them shares some, else by NUMA node
// `numa` (-1: not known). `order` is filled with the chosen ones, best first.
// Throws sdk::Error that tells of every port when none is left.
void choose_ports(std::vector<Port>& ports, const Settings& settings, int numa, std::vector<size_t>* order);
// find_ports and choose_ports for the calling thread. Throws likewise, but only after `ports` has all of them.
void look_around(const Settings& settings, std::vector<Port>* ports, std::vector<size_t>* order);
// What tutti-info --net tells of a port.
sdk::RailFacts facts_of(const Port& port, const Settings& settings);
// The NUMA node that the calling thread runs on, or -1.
int own_numa_node();

// Fills shared_hops from the PCI hierarchy that sysfs shows, and returns the NUMA node of the PCI device `near`. Throws
// sdk::Error when there is no such device.
int find_nearness(std::vector<Port>& ports, const std::string& near, const std::string& sysfs = "/sys");

// A rail as a peer sees it.
struct PeerRail {
  bool infiniband = false;
  uint8_t mtu = 0;
  uint32_t lid = 0;
  uint32_t megabits = 0;
  uint32_t greeter = 0;  // datagram queue pair
  uint32_t key = 0;      // its key
  std::vector<RawGid> gids;
};

// What get_address tells.
struct PeerAddress {
  Id endpoint{};  // random
  std::vector<PeerRail> rails;

  std::string encode() const;
  // Throws sdk::Error when these bytes are no such address.
  static PeerAddress decode(std::string_view blob);
};

// One of our rails with one of a peer's.
struct Pairing {
  uint32_t rail = 0, peer_rail = 0;
  uint32_t gid_index = 0;
  RawGid gid{}, peer_gid{};
  uint8_t mtu = 0;
  std::string why;
};

// Pairs rails off, each used once: the same subnet first, then (RoCE only, and only when no two rails share a subnet)
// routable addresses of one family; link-local ones last. A port meets itself only when nothing else shares a subnet.
// Empty: nothing fits.
std::vector<Pairing> pair_rails(const std::vector<Port>& own, const PeerAddress& peer, const Settings& settings);

// "10.1.0.1" or "fe80::1".
std::string gid_text(const RawGid& gid);

}  // namespace tutti::ib
