// SPDX-License-Identifier: Apache-2.0
//
// Which devices the ranks of a communicator work on: in its first collective on device memory each rank tells all
// others which device is its own, and hears from them. It may let its device wait by itself (executor/1's
// enqueue_fused) when no other rank is on it: else one could keep from another the very time that it waits for, also by
// way of a third one, so that it does not matter with whom a rank exchanges bytes. Device numbers mean nothing outside
// a process, so devices are told by what device/1's identify says; of a rank that says nothing nothing is known.
#pragma once

#include <tutti/registry.h>

#include <cstdint>
#include <list>
#include <vector>

#include "engine/memory_exchange.hpp"
#include "engine/topology.hpp"

namespace tutti::core {

class DeviceCensus {
 public:
  struct Place {
    DeviceTables tables;
    uint32_t device = 0;
    uint32_t rank = 0;
    const Topology* topology = nullptr;
    MemoryExchange* exchange = nullptr;                    // nullptr: nobody can be asked
    std::list<MemoryExchange::Received>* early = nullptr;  // what came for others is left here
  };
  explicit DeviceCensus(Place place);
  // Goes on; true when everybody who can be asked has answered.
  bool advance();
  // All other ranks are processes of this host and on other devices than this rank's. Once advance() said true.
  bool alone() const { return alone_; }

 private:
  bool heard_from(uint32_t rank);

  Place place_;
  ChannelNotice own_;
  bool alone_ = true;
  std::vector<uint32_t> unheard_;
  std::vector<uint32_t> untold_;
};

}  // namespace tutti::core
