// SPDX-License-Identifier: Apache-2.0
//
// The calls of the application that begin an operation. Plain, persistent, grouped: a call's request owns what the
// operation needs, and all operations of a kind begin alike. The arguments were checked by the caller (api/).
//
// Threads: the application's; none of them holds the engine.
#pragma once

#include <tutti/tutti.h>

#include <array>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <vector>

#include "comm/call_group.hpp"
#include "comm/progress_engine.hpp"
#include "comm/waits.hpp"

namespace tutti::core {

class Calls {
 public:
  Calls(ProgressEngine& engine, Waits& waits) : engine_(engine), waits_(waits) {}

  // request == nullptr: blocks. `blocks`: where they are unequal. All throw Failure.
  tutti_status collective(const Shape& shape, const HostBuffers& buffers, const tutti_options& options,
                          tutti_request** request, const BlockTable* blocks);
  // The same for a blocking call that repeats the last one of its collective; nullopt: it does not, and nothing was
  // done.
  std::optional<tutti_status> repeat(const PlainCall& call);
  // The same on device memory, and calls without buffers on a stream: returns when the work is in the stream.
  tutti_status in_stream(const StreamCall& call, const tutti_options& options, tutti_request** request,
                         const BlockTable* blocks);
  // One or several sends and receives. `call` says where those on device memory are; they are in its stream when this
  // returns. `name`: of the call, for reports. `plain`: the messages of a tutti_exchange without options and request.
  tutti_status exchange(const char* name, std::span<const Transfer> transfers, const StreamCall& call,
                        const tutti_options& options, tutti_request** request,
                        std::span<const tutti_message> plain = {});
  // The same for messages that are those of the last such call, byte for byte; nullopt: they are not, and nothing was
  // done.
  std::optional<tutti_status> repeat(std::span<const tutti_message> plain);

  // A group of calls: from open_group() on they are remembered, and end_group() begins them together.
  void open_group();
  tutti_status end_group(const tutti_options& options, tutti_request** request);
  void cancel_group();
  // The number of its calls, if one is open.
  std::optional<size_t> group() const { return group_ ? std::optional(group_->size()) : std::nullopt; }

  // Persistent requests, made by the calls above with TUTTI_PERSISTENT. release: the application is about to free one.
  void start(tutti_request& request);
  void release(const tutti_request& request);

  // Operators of the application. free_op throws Failure when an operation under way uses it.
  uint32_t make_op(UserOperator op);
  void free_op(uint32_t op);

 private:
  uint64_t timeout(const tutti_options& options) const {
    return options.timeout_ns ? options.timeout_ns : engine_.base.configuration.timeout.ns;
  }
  static bool persistent(const tutti_options& options) { return options.flags & TUTTI_PERSISTENT; }

  // The one way in which operations begin. The engine is held.
  void begin(Operations::Request made, std::span<const Transfer> transfers = {});
  void begin_collective(Operations::Request made);
  void begin_transfers(Operations::Request made, std::span<const Transfer> transfers);
  void begin_group(Operations::Request made);
  void begin_parts(tutti_request& request);
  void begin_in_stream(const StreamCall& call, std::span<const Transfer> transfers, const BlockTable* blocks,
                       const StreamAsker& asker);
  tutti_status put_in_stream(StreamCall call, std::span<const Transfer> transfers, const tutti_options& options,
                             tutti_request** request, const BlockTable* blocks);

  tutti_request& accept(Operations::Request made, std::span<const Transfer> transfers, const tutti_options& options);
  tutti_status answer(tutti_request& made, tutti_request** request);
  tutti_status add_to_group(GroupedCall made, const tutti_options& options, tutti_request** request);
  tutti_status add_to_group(std::span<const Transfer> transfers, const StreamCall& call, const tutti_options& options,
                            tutti_request** request);
  void plan_parts(CallGroup& group);
  uint32_t transfer_service(const char* name, std::span<const Transfer> transfers);

  tutti_status run(Plan& plan, const HostBuffers& buffers, uint64_t timeout_ns);
  tutti_status run(const char* name, std::span<const Transfer> transfers, const tutti_options& options);
  void look_now_and_then();

  ProgressEngine& engine_;
  Waits& waits_;
  // The last exchange of host memory that may be repeated without checks.
  struct PlainExchange {
    std::array<tutti_message, 8> messages{};
    std::vector<Transfer> transfers;  // as many; empty: none
    bool is(std::span<const tutti_message> others) const {
      return !others.empty() && others.size() == transfers.size() &&
             std::memcmp(others.data(), messages.data(), others.size_bytes()) == 0;
    }
  };
  PlainExchange exchanged_;
  std::optional<CallGroup> group_;     // open
  std::vector<const char*> carriers_;  // of the transfers that begin
};

}  // namespace tutti::core
