// SPDX-License-Identifier: Apache-2.0
//
// Splitting a communicator. All ranks gather twice on the communicator that is split: what each asks for, and whether
// each has made its part. Nothing is sent on a part before all have.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/trunk.hpp"
#include "comm/configuration.hpp"
#include "topology/topology.hpp"

namespace tutti::core {

class Communicator;
class ProgressEngine;

// A rank's call of tutti_comm_split.
struct SplitCall {
  uint32_t by = 0;
  uint32_t color = 0;
  int64_t key = 0;
  uint64_t timeout_ns = 0;
  uint32_t flags = 0;
  std::string name;

  // The part of this rank: ranks whose groups are equal come together. "": none. `label`: it, for names.
  std::string group(const Topology& topology, uint32_t rank, std::string* label) const;
  // Throws Failure where it can never be right.
  void check() const;
};

// The trunk of a communicator and those that were split from it, and where the communicator's ranks are on it.
struct Family {
  std::shared_ptr<Trunk> trunk;  // nullptr: none was split off yet
  std::vector<uint32_t> ranks;   // by rank: the trunk's
  uint64_t splits = 0;           // how often this communicator was split
  uint64_t key = 0;              // tutti_endpoint_config::family of this rank's endpoints
};

// The beginnings of a part.
struct SplitPart {
  Configuration configuration;
  std::unique_ptr<Bootstrap> bootstrap;
  Family family;
  std::vector<uint32_t> members;  // by rank: the parent's
  uint64_t id = 0;
};

// Collective: this rank's part; nullptr: it has none. Throws Failure.
std::unique_ptr<Communicator> split(ProgressEngine& engine, const SplitCall& call);

}  // namespace tutti::core
