// SPDX-License-Identifier: Apache-2.0
//
// tutti-info --net: what the network transports see on this host, what they would use, and why.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <string>
#include <vector>

namespace info {

struct RailAddress {
  std::string text, interface, kind;
  bool usable = false;
};

struct Rail {
  std::string name, medium, state, why;
  bool chosen = false;
  uint64_t bandwidth = 0;  // bytes per second; 0: not known
  int32_t numa = -1;       // -1: not known
  uint32_t mtu = 0;        // 0: not known
  std::vector<RailAddress> addresses;
};

struct Network {
  std::string transport;
  std::vector<Rail> rails;
  std::string problem;  // why there are none
};

// Why the transport cannot serve here; "": it can.
std::string why_left_out(const tutti_transport& transport);

// One for each transport that tells of its rails, and for "ib" and "tcp" also when they are missing.
std::vector<Network> find_networks();

std::string network_text(const std::vector<Network>& networks);
std::string network_json(const std::vector<Network>& networks);

}  // namespace info
