// SPDX-License-Identifier: Apache-2.0
//
// The verbs ports of this host: their facts, the choice of the ports that this rank uses, and the pairing of ports and
// GIDs with those of a peer.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <tutti/sdk/rails.hpp>
#include <vector>

#include "settings.hpp"
#include "wire.hpp"

namespace tutti::ib {

// "10.1.0.1" or "fe80::1".
std::string gid_text(const RawGid& gid);
// Is it a mapped IPv4 address?
bool is_v4(const RawGid& gid);

struct Gid : OfferedGid {
  bool roce_v2 = false;
  std::string interface;  // network interface; a VLAN has an interface of its own
};

struct Port {
  std::string device;
  uint32_t port = 0;
  bool infiniband = false;  // else Ethernet: RoCE
  uint32_t lid = 0;
  bool needs_route = false;  // InfiniBand: its packets need a global route header
  std::string unfit;         // the reason why its device cannot carry this transport; "": it can
  uint8_t mtu = 0;           // ibv_mtu, active
  bool up = false;
  std::string state;  // for reports
  uint32_t megabits = 0;
  int numa = -1;             // -1: unknown
  uint32_t shared_hops = 0;  // steps from the PCI root that lead to Settings::near, too
  std::vector<Gid> gids;
  std::string no_dma_buf;  // the reason why its device cannot register other devices' memory; "": it can
  // The choice.
  bool chosen = false;
  std::string why;

  // May this GID be used? It has the right type, and TUTTI_IB_GID_INDEX if that is set.
  bool offers(const Gid& gid, const Settings& settings) const {
    return settings.gid_index ? gid.index == *settings.gid_index : infiniband || gid.roce_v2;
  }
  std::string name() const { return device + ":" + std::to_string(port); }
  // The part of an offer about this port, without a queue pair.
  OfferedRail offer(const Settings& settings) const;
};

// Marks at most settings.rails ports as chosen, and sets the reason for each port. A chosen port is up, is admitted by
// the filter, has a usable GID and is among the nearest: by PCI hops shared with settings.near if any port shares some,
// else by NUMA node `numa` (-1: unknown). Fills `order` with the chosen ports, best first. Throws sdk::Error with the
// reasons of all ports when none is left.
void choose_ports(std::vector<Port>& ports, const Settings& settings, int numa, std::vector<size_t>* order);
// Finds all ports of all devices and chooses among them, near settings.near or else the calling thread. Throws
// sdk::Error; `ports` is complete when choose_ports throws. An unknown `near` that the user has not set is cleared,
// with a warning.
void look_around(Settings& settings, std::vector<Port>* ports, std::vector<size_t>* order);
// Asks the device for the facts of a port that may have changed.
void look_again(ibv_context* context, Port& port);
// The facts that tutti-info --net prints.
sdk::RailFacts facts_of(const Port& port, const Settings& settings);

// Megabits per second of sysfs' "rate", as in "800 Gb/sec (4X XDR)"; 0: it says none.
uint32_t megabits_of_rate(const std::string& rate);

// Fills shared_hops from the PCI tree in sysfs, and returns the NUMA node of the PCI device `near`. Throws sdk::Error
// when there is no such device.
int find_nearness(std::vector<Port>& ports, const std::string& near, const std::string& sysfs = "/sys");

// One rail of each end.
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

// Pairs rails, each used once; the fastest pairs come first. Empty: nothing fits. A pure function: both ends pass the
// lower rank's rails first and get the same pairs (`own` is the lower rank's).
//
// Rails that share a subnet are paired, the fastest ones first; a port meets itself only when nothing else shares a
// subnet. Rails that share a subnet with no rail of the other end are then paired by their addresses (RoCE only): both
// routable and of one family, or both link-local. Such a pair is a guess. It is made only for rails of a faster class
// than every pair that shares a subnet, so a slow adapter in a common subnet does not hide a fabric with a subnet for
// each rail, and no guess stands beside sure pairs of the same speed.
std::vector<Pairing> pair_rails(const std::vector<OfferedRail>& lower, const std::vector<OfferedRail>& higher);
// The GIDs of all rails: "10.1.0.1/24, fe80::1/64".
std::string gids_in_words(const std::vector<OfferedRail>& rails);

}  // namespace tutti::ib
