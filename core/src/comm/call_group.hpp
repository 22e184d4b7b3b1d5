// SPDX-License-Identifier: Apache-2.0
//
// Calls that begin and end together. Small collectives of one kind travel as one call: their blocks are copied side by
// side into memory of the group, and back.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "engine/p2p/transfer.hpp"
#include "engine/plan/block_table.hpp"
#include "engine/plan/plan.hpp"
#include "stream/stream_call.hpp"

namespace tutti::core {

// A collective as the application made it.
struct GroupedCall {
  GroupedCall(const StreamCall& made, const Factor& by, bool device, const BlockTable* unequal)
      : call(made), factor(by), on_stream(device) {
    if (unequal) blocks = *unequal;
  }
  StreamCall call;  // on the host without the stream
  Factor factor;    // of a premul_sum on the host
  bool on_stream;
  std::optional<BlockTable> blocks;  // where they are unequal
};

// One call that is carried out: one of the group's, or several.
struct GroupPart {
  std::vector<uint32_t> calls;  // their numbers
  Shape shape;
  // Several calls: the offsets of their joined blocks in the group's memory, and the bytes of one such block.
  size_t in = 0, out = 0;
  uint64_t block_bytes = 0;
  Plan* plan = nullptr;  // on the host; the group pins it
  bool several() const { return calls.size() > 1; }
};

class CallGroup {
 public:
  // As they are made.
  std::vector<GroupedCall> calls;
  std::vector<Transfer> transfers;      // of host memory
  std::vector<Transfer> on_stream;      // of device memory
  std::optional<StreamCall> in_stream;  // where those are

  size_t size() const { return calls.size() + transfers.size() + on_stream.size(); }

  // Once all are made: divides them into parts, the same on all ranks.
  void divide(uint32_t rank, uint32_t nranks);
  std::vector<GroupPart>& parts() { return parts_; }
  const std::vector<GroupPart>& parts() const { return parts_; }
  // The arguments of a part, whose inputs are copied if it is of several.
  HostBuffers buffers(const GroupPart& part);
  // The results of a part are there.
  void unpack(const GroupPart& part) const;
  uint64_t open = 0;  // parts and groups of transfers that have not ended, and one until all have begun

 private:
  bool joins(const GroupPart& part, const GroupedCall& made) const;
  uint64_t call_bytes(const Shape& shape) const;
  template <typename Copy>
  void for_each_block(const GroupPart& part, uint32_t buffer, Copy&& copy) const;

  uint32_t rank_ = 0, nranks_ = 1;
  std::vector<GroupPart> parts_;
  std::vector<std::byte> memory_;
};

}  // namespace tutti::core
