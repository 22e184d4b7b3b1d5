// SPDX-License-Identifier: Apache-2.0
//
// tutti_request: one operation, of one of three kinds. All kinds begin and complete alike (operations.hpp).
#pragma once

#include <tutti/tutti.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>
#include <vector>

#include "p2p/point_to_point.hpp"
#include "plan/plan.hpp"

namespace tutti::core {

class Communicator;

// A collective on host memory.
struct HostCollective {
  Plan* plan = nullptr;
  const void* in = nullptr;
  void* out = nullptr;
  bool launched = false;
  uint64_t last_progress_ns = 0;
};
// A collective in a stream.
struct StreamCollective {};
// Sends and receives that end together: on the host, or all in a stream.
struct TransferGroup {
  std::vector<Transfer> transfers;
  uint64_t open = 0;  // on the host: not complete
};

}  // namespace tutti::core

// Belongs to the application until tutti_request_free, or else to the communicator's Operations.
struct tutti_request {
  using Collective = tutti::core::HostCollective;
  using Group = tutti::core::TransferGroup;
  Collective& collective() { return std::get<Collective>(kind); }
  const Collective& collective() const { return std::get<Collective>(kind); }
  Group& group() { return std::get<Group>(kind); }

  std::variant<Collective, tutti::core::StreamCollective, Group> kind;
  tutti::core::Communicator* comm = nullptr;
  std::shared_ptr<const std::atomic<bool>> alive;  // the communicator; nullptr: the application has no part in it
  tutti_request* next = nullptr;                   // in a list of Operations
  uint64_t sequence = 0;                           // of collectives
  uint64_t bytes = 0;                              // that reports count
  uint64_t timeout_ns = 0;
  uint64_t begin_ticks = 0;
  uint32_t service = 0;
  std::atomic<bool> complete{true};
  tutti_status status = TUTTI_OK;
  std::string error;
};
