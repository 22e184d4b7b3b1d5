// SPDX-License-Identifier: Apache-2.0
//
// The verbs ports of this host: what they are, which of them this rank uses and why, what peers are offered of them,
// and which port and GID of ours meets which of a peer's.
#pragma once

#include <cstdint>
#include <string>
#include <tutti/sdk/rails.hpp>
#include <vector>

#include "settings.hpp"
#include "wire.hpp"

namespace tutti::ib {

// "10.1.0.1" or "fe80::1".
std::string gid_text(const RawGid& gid);
// Is it an IPv4 address in IPv6's clothes?
bool is_v4(const RawGid& gid);

struct Gid : OfferedGid {
  bool roce_v2 = false;
  std::string interface;  // network interface; a tagged one is an interface of its own
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
  int numa = -1;             // -1: not known
  uint32_t shared_hops = 0;  // of the way from the PCI root to it, with the way to Settings::near
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
  // As a peer is told of it; without a queue pair.
  OfferedRail offer(const Settings& settings) const;
};

// All ports of all devices, in the order of the verbs library. Throws sdk::Error when there is no verbs device or one
// cannot be asked.
std::vector<Port> find_ports();
// Marks at most settings.rails ports as chosen, and says of each why or why not: up, admitted by the filter, with a
// usable GID, and nearest: in PCI hops to settings.near where any of them shares some, else by NUMA node `numa` (-1:
// not known). `order` is filled with the chosen ones, best first.
// Throws sdk::Error that tells of every port when none is left.
void choose_ports(std::vector<Port>& ports, const Settings& settings, int numa, std::vector<size_t>* order);
// find_ports and choose_ports, near settings.near or else the calling thread. Throws likewise, but only after `ports`
// has all of them. A `near` that is not the user's and is unknown here is cleared, with a warning.
void look_around(Settings& settings, std::vector<Port>* ports, std::vector<size_t>* order);
// What tutti-info --net tells of a port.
sdk::RailFacts facts_of(const Port& port, const Settings& settings);

// Fills shared_hops from the PCI hierarchy that sysfs shows, and returns the NUMA node of the PCI device `near`. Throws
// sdk::Error when there is no such device.
int find_nearness(std::vector<Port>& ports, const std::string& near, const std::string& sysfs = "/sys");

// One of our rails with one of a peer's.
struct Pairing {
  struct End {
    uint32_t rail = 0;
    OfferedGid gid{};
  };
  End own, peer;
  uint32_t mtu = 0;
  uint32_t megabits = 0;  // of the slower end
  std::string why;
};

// Pairs rails off, each used once; the fastest pairs come first. Empty: nothing fits. A pure function: both ends give
// it the lower rank's rails first and come to the same pairs (`own` is the lower rank's).
//
// Rails that share a subnet are paired, the fastest ones first; a port meets itself only when nothing else shares a
// subnet. Rails that share a subnet with no rail of the other end are then paired by their addresses (RoCE only): both
// routable and of one family, or both link-local. That they reach each other is a guess, so it is made only for rails
// of a faster class than every pair that shares a subnet: a slow adapter in a common subnet does not hide a fabric with
// a subnet for each rail, and a guess does not stand beside pairs as fast that are sure.
std::vector<Pairing> pair_rails(const std::vector<OfferedRail>& lower, const std::vector<OfferedRail>& higher);
// "10.1.0.1/24, fe80::1/64": of all rails.
std::string gids_in_words(const std::vector<OfferedRail>& rails);

}  // namespace tutti::ib
