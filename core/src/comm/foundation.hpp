// SPDX-License-Identifier: Apache-2.0
//
// The state that the ranks of a communicator settle before its first call: who they are, what they agree on, their
// endpoints and links, and how algorithms are chosen. The constructors run the steps in order:
//
//   meet       the ranks find each other                     a part: they have, on the parent's trunk
//   agree      settings and algorithms are compared          a part: they are the parent's
//   open       each rank opens its endpoints
//   describe   each rank tells the others of itself          a part: the parent knows
//
// All parts of a communicator refer to it, and it outlives them.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "comm/configuration.hpp"
#include "comm/introduction.hpp"
#include "comm/rendezvous.hpp"
#include "comm/split.hpp"
#include "engine/choose/native.hpp"
#include "engine/choose/selector.hpp"
#include "engine/fabric/fabric.hpp"
#include "engine/p2p/point_to_point.hpp"
#include "record/reports.hpp"
#include "topology/topology.hpp"

namespace tutti::core {

struct Foundation {
  // Collective. Both throw Failure, and the other ranks are notified.
  Foundation(Configuration given, const Succession& succession);
  // For one of the communicators into which the parent is split. It asks no other rank.
  Foundation(const Foundation& parent, SplitPart part);
  Foundation(const Foundation&) = delete;
  Foundation& operator=(const Foundation&) = delete;

  uint32_t rank() const { return configuration.rank; }
  uint32_t nranks() const { return configuration.nranks; }
  const std::string& name() const { return configuration.name; }
  ControlPlane& control() const { return bootstrap->control(); }
  // Lanes for the windows of operations and point to point, and for device memory.
  uint32_t host_lanes() const { return configuration.windows * configuration.lanes + PointToPoint::lanes; }
  uint32_t device_lanes() const { return configuration.lanes + 1; }
  const char* why_no_device() const;
  // Collective: the groups of plugins that carry out whole collectives.
  void make_natives(const Deadline& deadline);
  // The communicator cannot be made: tells the other ranks why, and throws it.
  [[noreturn]] void give_up(const std::exception& problem);

  Configuration configuration;  // its rank and nranks as the ranks have met
  Reports reports;
  DeviceMemory device;  // that it is bound to
  std::unique_ptr<Bootstrap> bootstrap;
  Family family;
  Agreement common;  // of all ranks
  Fabric fabric;
  Topology topology;
  std::optional<Selector> selector;
  std::vector<std::unique_ptr<NativeGroup>> natives;

 private:
  struct Means;
  Means find();
  void take_place(std::unique_ptr<Bootstrap> met);
  void introduce(Means& means, const Deadline& deadline);
  void begin_trace(const Means& means);
  void open_fabric(const Means& means);
  void describe(std::vector<RankDescription> ranks, Means& means);
};

}  // namespace tutti::core
