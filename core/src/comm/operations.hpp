// SPDX-License-Identifier: Apache-2.0
//
// The operations of a communicator that are under way. All of them, sends and receives and calls on streams included,
// begin with make() and end in complete(). Collectives on host memory are also carried out here: they are launched in
// the order of the calls, each in a window of the communicator's lanes, and complete in any order.
//
// Threads: the one that holds the communicator's engine.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "comm/breakdown.hpp"
#include "comm/request.hpp"
#include "engine/check/call_check.hpp"
#include "engine/fabric/fabric.hpp"
#include "engine/host/executor.hpp"
#include "engine/p2p/point_to_point.hpp"

namespace tutti::core {

class Reports;
struct Foundation;

class Operations {
 public:
  // All of them outlive operations. `comm`: for requests.
  Operations(Communicator& comm, Foundation& base, PortEvents& events, Breakdown& breakdown, CallCheck& call_check,
             const WindowList& memory_windows);
  Operations(const Operations&) = delete;
  Operations& operator=(const Operations&) = delete;
  // Requests of the application may outlive it.
  ~Operations() { pool_->alive.store(false, std::memory_order_release); }

  // ---- All kinds.

  struct RequestDeleter {
    RequestPool* pool = nullptr;
    void operator()(tutti_request* request) const {
      if (pool) pool->give_back(*request);
    }
  };
  using Request = std::unique_ptr<tutti_request, RequestDeleter>;
  // A request of a call that begins now. `lasting`: the application or the caller holds it when it is complete.
  // Otherwise it returns by itself, and is as it was until the next one is made.
  template <typename Kind>
  Request make(bool lasting, uint64_t timeout_ns) {
    return make(RequestKind(Kind{}), lasting, timeout_ns);
  }
  // A complete persistent request for its next operation. It is the application's, whatever happens.
  Request make_again(tutti_request& request) const {
    renew(request, request.timeout_ns);
    return {&request, {}};
  }
  // It starts nothing, and is the application's. Its plans, or those of a group of calls, stay until unpin().
  static tutti_request& keep(Request request);
  static void unpin(const tutti_request& request);
  // The request, which is not lasting, is a part of a group of calls.
  static void join(tutti_request& request, tutti_request& group, std::optional<uint32_t> part) {
    request.owner = &group;
    request.part = part;
  }
  // The number of the next collective, on the host or in a stream.
  uint64_t next_sequence() const { return next_sequence_; }
  uint64_t take_sequence() { return next_sequence_++; }
  // Compares the call with those that other ranks have announced. A difference ends the communicator, and throws
  // Failure.
  void check_notices(const Call& mine) const;
  // The request is pending until complete().
  tutti_request& pend(Request request) {
    ++pending_;
    if (request->owner) ++std::get<CallGroup>(request->owner->kind).open;
    return *request.release();
  }
  uint64_t pending() const { return pending_; }
  // Ends the bookkeeping of an operation. A lasting one may be freed by its owner from here on.
  void complete(tutti_request& request, tutti_status status);

  // ---- Sends and receives.

  // Announces the transfers to their peers. A send that met another kind of receive ends the communicator: its bytes
  // may be on their way already.
  void announce(std::vector<Transfer>& transfers, PointToPoint& point_to_point) const;
  // The request is one for these transfers from now on, none of which has begun. Each of them ends by ended(). On the
  // host the request completes after the last one and all_begun().
  void begin(tutti_request& request, std::span<const Transfer> transfers);
  void ended(Transfer& transfer, tutti_status status, const std::string& error);
  void all_begun(tutti_request& request);
  // One of a group in a stream that has not met the other side's, or nullptr.
  static const Transfer* unmatched(const tutti_request& request);

  // ---- Collectives on host memory.

  // The one blocking call there can be; it is no pending request.
  tutti_request& begin_blocking(Plan& plan, const HostBuffers& buffers, uint64_t timeout_ns);
  // Launches the blocking call when it is its turn.
  bool launch_blocking() { return !first_ && launch(blocking_); }
  // All parts of a group have begun.
  void all_parts_begun(tutti_request& group) { part_ended(group, std::nullopt, TUTTI_OK, {}); }
  // The execution of a launched collective.
  Execution& execution(const tutti_request& request) { return window_of(request).execution; }
  // At the end of a plan's first launch: what its peers told of their calls before they sent anything is here by now.
  // False when it has ended the communicator.
  bool listen(const tutti_request& request);
  // Begins a collective, whose plan and buffers the request has.
  tutti_request& begin(Request made);
  // Somebody waits for the request from now on.
  void awaits(const tutti_request& request);
  // Launches what can be launched, and carries out what can be carried out now; true when something moved. Throws
  // Failure.
  bool advance();
  bool empty() const { return !first_; }
  bool all_launched() const;
  // Has one stood still for longer than its timeout? To be called now and then: it also records for the flight recorder
  // where the oldest one stands. nullptr: none has.
  const tutti_request* overdue(uint64_t now_ns);
  // For the flight recorder: a call waits for the request. nullptr: for the blocking one, if there is one.
  void record_awaited(const tutti_request* request);
  // The number of the oldest one.
  std::optional<uint64_t> oldest_sequence() const;
  // The step that the oldest one waits for, or the rank to which it is being connected.
  std::optional<tutti_trace_step> waited_for() const;
  // Where the oldest one stands, for messages; "": none is under way.
  std::string standpoint() const;

  // ---- The end of the communicator.

  // Has memory been sent by reference that its receiver has not given back?
  bool lent() const;
  // The native groups have been told: ends what plugins carry out.
  void abandon();
  // Completes all collectives on host memory.
  void fail_all(tutti_status status);

 private:
  struct Window {
    Execution execution;
    const tutti_request* running = nullptr;
  };
  Window& window_of(const tutti_request& request) { return windows_[request.collective().window]; }
  const Window& window_of(const tutti_request& request) const { return windows_[request.collective().window]; }
  const tutti_request* oldest() const;
  void renew(tutti_request& request, uint64_t timeout_ns) const;
  void update_transports(Plan& plan);
  void start(tutti_request& request);
  bool launch(tutti_request& request);
  void record_end(const tutti_request& request, tutti_status status);
  void end_collective(tutti_request& request, tutti_status status);
  void part_ended(tutti_request& group, std::optional<uint32_t> part, tutti_status status, std::string error);
  void record_waits(uint64_t now_ns, bool moved);
  std::string own_error(const std::string& error) const;
  Request make(RequestKind kind, bool lasting, uint64_t timeout_ns);

  Communicator& comm_;
  Foundation& base_;
  Reports& reports_;
  PortEvents& events_;
  Breakdown& breakdown_;
  CallCheck& call_check_;
  const WindowList& memory_windows_;
  std::vector<Window> windows_;
  MoveTrials trials_;
  uint64_t next_sequence_ = 0;
  uint64_t pending_ = 0;
  tutti_request blocking_;
  tutti_request* first_ = nullptr;  // asynchronous collectives on host memory, oldest first
  tutti_request** end_ = &first_;   // the last one's `next`
  std::shared_ptr<RequestPool> pool_ = std::make_shared<RequestPool>();
};

}  // namespace tutti::core
