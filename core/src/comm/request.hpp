// SPDX-License-Identifier: Apache-2.0
//
// tutti_request: one operation, of one of four kinds. All kinds begin and complete alike (operations.hpp). A request
// is used again for operations of its kind, with the memory that it has.
#pragma once

#include <tutti/tutti.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "comm/call_group.hpp"
#include "engine/p2p/transfer.hpp"
#include "engine/plan/plan.hpp"
#include "stream/stream_call.hpp"

namespace tutti::core {

class Communicator;

// A collective on host memory.
struct HostCollective {
  Plan* plan = nullptr;
  HostBuffers buffers;
  uint32_t mark = 0;    // of its messages
  uint32_t window = 0;  // that it runs in
  bool launched = false;
  bool timed = false;        // alone, and waited for from the beginning: the plan learns from its time
  uint64_t begun_ticks = 0;  // when the call that began it returned
  uint64_t last_progress_ns = 0;
};
// A collective in a stream.
struct StreamCollective {
  StreamCall call;                   // of a persistent one
  std::optional<BlockTable> blocks;  // its own, where they are unequal
};
// Sends and receives that end together: on the host, or all in a stream.
struct TransferGroup {
  std::vector<Transfer> transfers;
  uint64_t open = 0;            // that are not done
  StreamCall call;              // of a persistent one, as the next
  std::vector<Transfer> given;  // as they begin
};
using RequestKind = std::variant<HostCollective, StreamCollective, TransferGroup, CallGroup>;

// The requests of a communicator that nobody uses. It lives as long as the communicator or a request of the
// application.
class RequestPool {
 public:
  ~RequestPool();
  // One of the kind with that index in RequestKind; nullptr: there is none. One thread at a time.
  tutti_request* take(size_t kind);
  // Any thread.
  void give_back(tutti_request& request);
  // Does the communicator live?
  std::atomic<bool> alive{true};

 private:
  std::array<std::atomic<tutti_request*>, std::variant_size_v<RequestKind>> first_{};
};

}  // namespace tutti::core

// Belongs to the application until tutti_request_free, or else to the communicator's Operations.
struct tutti_request {
  using Collective = tutti::core::HostCollective;
  using Group = tutti::core::TransferGroup;
  Collective& collective() { return std::get<Collective>(kind); }
  const Collective& collective() const { return std::get<Collective>(kind); }
  Group& group() { return std::get<Group>(kind); }

  tutti::core::RequestKind kind;
  tutti::core::Communicator* comm = nullptr;
  std::shared_ptr<tutti::core::RequestPool> pool;  // nullptr: the application has no part in it
  tutti_request* next = nullptr;                   // in a list of Operations, or in the pool
  uint64_t sequence = 0;                           // of collectives
  uint64_t bytes = 0;                              // that reports count
  uint64_t timeout_ns = 0;
  uint64_t begin_ticks = 0;
  uint32_t service = 0;
  bool persistent = false;         // it is started by the application, again and again
  tutti_request* owner = nullptr;  // the group of calls that it belongs to, and the part of it that it is
  std::optional<uint32_t> part;
  std::atomic<bool> complete{true};
  tutti_status status = TUTTI_OK;
  std::string error;
};
