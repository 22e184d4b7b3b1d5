// SPDX-License-Identifier: Apache-2.0
#include "comm/calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/clock.hpp"
#include "base/failure.hpp"

namespace tutti::core {
namespace {

// In a group a call has no request: the group has one.
void require_plain(const tutti_options& options, tutti_request** request) {
  if (request)
    throw Failure(
        TUTTI_INVALID_ARGUMENT,
        "request is not NULL, but a group of calls is open, which has one request for all: pass NULL here and "
        "a request to tutti_group_end");
  if (options.flags & TUTTI_PERSISTENT)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  "options.flags has TUTTI_PERSISTENT, but a group of calls is open: pass it to tutti_group_end");
}

bool is_plain(const tutti_options& options) {
  return !options.algorithms && !options.order && !options.wire && !options.tag && !options.flags &&
         !options.timeout_ns && !options.stream;
}

const BlockTable* table_of(const std::optional<BlockTable>& blocks) { return blocks ? &*blocks : nullptr; }

}  // namespace

// ---- All kinds of operations ---------------------------------------------------------------------------------

void Calls::begin(Operations::Request made, std::span<const Transfer> transfers) {
  if (std::holds_alternative<HostCollective>(made->kind)) return begin_collective(std::move(made));
  if (std::holds_alternative<CallGroup>(made->kind)) return begin_group(std::move(made));
  begin_transfers(std::move(made), transfers);
}

void Calls::begin_collective(Operations::Request made) {
  Operations& operations = engine_.operations;
  if (engine_.call_check.has_notices())
    operations.check_notices(
        call_of(*made->collective().plan, operations.next_sequence(), made->collective().buffers.tag));
  const bool is_part = made->owner != nullptr;
  tutti_request& request = operations.begin(std::move(made));
  if (is_part) return;
  engine_.progress();
  if (!request.complete.load(std::memory_order_relaxed)) request.collective().begun_ticks = ticks();
}

void Calls::begin_transfers(Operations::Request made, std::span<const Transfer> transfers) {
  Operations& operations = engine_.operations;
  Breakdown& breakdown = engine_.breakdown;
  operations.begin(*made, transfers);
  tutti_request& request = operations.pend(std::move(made));
  std::vector<Transfer>& group = request.group().transfers;
  try {
    for_each_own(group, engine_.base.rank(), [&](Transfer& send, Transfer& receive) {
      if (send.bytes) std::memcpy(receive.data, send.data, send.bytes);
      for (Transfer* one : {&send, &receive}) operations.ended(*one, TUTTI_OK, {});
    });
    operations.announce(group, engine_.point_to_point);
  } catch (const std::exception& problem) {
    breakdown.fail(problem);
  }
  if (breakdown.begun())  // those that did not begin
    for (Transfer& transfer : group)
      if (!transfer.done) operations.ended(transfer, breakdown.error(), breakdown.text());
  operations.all_begun(request);
  engine_.progress();
}

void Calls::begin_group(Operations::Request made) {
  Breakdown& breakdown = engine_.breakdown;
  tutti_request& request = engine_.operations.pend(std::move(made));
  std::get<CallGroup>(request.kind).open = 1;
  try {
    begin_parts(request);
  } catch (const std::exception& problem) {  // others wait for what has not begun here
    breakdown.fail(problem);
    if (request.status == TUTTI_OK) {
      request.status = breakdown.error();
      request.error = breakdown.text();
    }
  }
  engine_.operations.all_parts_begun(request);
  engine_.progress();
}

// All ranks begin the collectives of a group in the order of its parts.
void Calls::begin_parts(tutti_request& request) {
  Operations& operations = engine_.operations;
  auto& group = std::get<CallGroup>(request.kind);
  const auto begin_on_device = [&](StreamCall call, std::span<const Transfer> transfers, const BlockTable* blocks) {
    call.timeout_ns = request.timeout_ns;
    begin_in_stream(call, transfers, blocks, {.group = &request});
  };
  for (uint32_t p = 0; p < group.parts().size(); ++p) {
    const GroupPart& part = group.parts()[p];
    if (part.plan) {
      auto made = operations.make<HostCollective>(false, request.timeout_ns);
      made->kind = HostCollective{part.plan, group.buffers(part)};
      Operations::join(*made, request, p);
      begin(std::move(made));
    } else {
      const GroupedCall& one = group.calls[part.calls.front()];
      begin_on_device(one.call, {}, table_of(one.blocks));
    }
  }
  if (!group.transfers.empty()) {
    auto made = operations.make<TransferGroup>(false, request.timeout_ns);
    Operations::join(*made, request, std::nullopt);
    made->service = transfer_service("exchange", group.transfers);
    begin(std::move(made), group.transfers);
  }
  if (!group.on_stream.empty()) begin_on_device(*group.in_stream, group.on_stream, nullptr);
}

void Calls::begin_in_stream(const StreamCall& call, std::span<const Transfer> transfers, const BlockTable* blocks,
                            const StreamAsker& asker) {
  if (transfers.empty())
    engine_.streams->begin(call, blocks, asker);
  else
    engine_.streams->begin(call, transfers, asker);
}

// Begins it, or keeps it for the starts to come.
tutti_request& Calls::accept(Operations::Request made, std::span<const Transfer> transfers,
                             const tutti_options& options) {
  tutti_request& request = *made;
  if (!persistent(options)) {
    begin(std::move(made), transfers);
    return request;
  }
  if (auto* group = std::get_if<TransferGroup>(&request.kind)) group->given.assign(transfers.begin(), transfers.end());
  return Operations::keep(std::move(made));
}

// The call has begun, or is kept.
tutti_status Calls::answer(tutti_request& made, tutti_request** request) {
  if (request) {
    *request = &made;
    return TUTTI_OK;
  }
  const std::unique_ptr<tutti_request, decltype(&tutti_request_free)> owner(&made, tutti_request_free);
  return waits_.wait(made, UINT64_MAX);
}

// ---- Plain calls ---------------------------------------------------------------------------------------------

// Calls that never wait would otherwise never look around.
void Calls::look_now_and_then() {
  constexpr uint64_t calls_per_look = 256;
  if (engine_.breakdown.pending() || engine_.waiter.is_due(calls_per_look)) engine_.look_around();
  engine_.breakdown.require_none();
}

tutti_status Calls::run(Plan& plan, const HostBuffers& buffers, uint64_t timeout_ns) {
  Operations& operations = engine_.operations;
  if (engine_.call_check.has_notices())
    operations.check_notices(call_of(plan, operations.next_sequence(), buffers.tag));
  return waits_.run(operations.begin_blocking(plan, buffers, timeout_ns));
}

std::optional<tutti_status> Calls::repeat(const PlainCall& call) {
  const Hold hold(engine_.lock);
  Plan* const plan = engine_.plans.recall(call);
  if (!plan || group_ || hold.is_locked()) return std::nullopt;
  look_now_and_then();
  return run(*plan, {call.in, call.out}, engine_.base.configuration.timeout.ns);
}

tutti_status Calls::collective(const Shape& shape, const HostBuffers& buffers, const tutti_options& options,
                               tutti_request** request, const BlockTable* blocks) {
  Operations& operations = engine_.operations;
  Breakdown& breakdown = engine_.breakdown;
  tutti_request* made = nullptr;
  {
    const Hold hold(engine_.lock);
    if (group_)
      return add_to_group({{shape, buffers.in, buffers.out, nullptr, buffers.tag}, buffers.factor, false, blocks},
                          options, request);
    look_now_and_then();
    Plan* plan = engine_.plans.recall(shape, blocks);
    if (!plan) plan = &breakdown.guard([&]() -> Plan& { return engine_.plans.find(shape, blocks); });
    if (!request && !hold.is_locked()) {
      if (!engine_.base.device && !blocks && is_plain(options) && !is_of_application(shape.op))
        engine_.plans.remember(*plan, buffers.in, buffers.out);
      return run(*plan, buffers, timeout(options));
    }
    auto fresh = breakdown.guard([&] { return operations.make<HostCollective>(true, timeout(options)); });
    fresh->kind = HostCollective{plan, buffers};
    made = &accept(std::move(fresh), {}, options);
  }
  return answer(*made, request);
}

tutti_status Calls::exchange(const char* name, std::span<const Transfer> transfers, const StreamCall& call,
                             const tutti_options& options, tutti_request** request,
                             std::span<const tutti_message> plain) {
  if (group_) return add_to_group(transfers, call, options, request);
  if (std::ranges::any_of(transfers, &Transfer::on_stream))
    return put_in_stream(call, transfers, options, request, nullptr);
  check_own(transfers, engine_.base.rank());
  tutti_request* made = nullptr;
  {
    const Hold hold(engine_.lock);
    engine_.require_sound();
    if (!request && !hold.is_locked()) {
      if (!engine_.base.device && plain.size() <= exchanged_.messages.size() && !plain.empty()) {
        exchanged_.transfers.assign(transfers.begin(), transfers.end());
        std::ranges::copy(plain, exchanged_.messages.begin());
      }
      return run(name, transfers, options);
    }
    auto fresh = engine_.operations.make<TransferGroup>(true, timeout(options));
    fresh->service = transfer_service(name, transfers);
    made = &accept(std::move(fresh), transfers, options);
  }
  return answer(*made, request);
}

// A blocking call that is alone waits inside, as a collective does: it takes no lock, and its request returns by
// itself.
tutti_status Calls::run(const char* name, std::span<const Transfer> transfers, const tutti_options& options) {
  auto fresh = engine_.operations.make<TransferGroup>(false, timeout(options));
  tutti_request& made = *fresh;
  made.service = transfer_service(name, transfers);
  begin_transfers(std::move(fresh), transfers);
  return waits_.finish(made);
}

std::optional<tutti_status> Calls::repeat(std::span<const tutti_message> plain) {
  const Hold hold(engine_.lock);
  if (!exchanged_.is(plain) || group_ || hold.is_locked()) return std::nullopt;
  engine_.require_sound();
  return run("exchange", exchanged_.transfers, {});
}

// The row of the transports that carry these.
uint32_t Calls::transfer_service(const char* name, std::span<const Transfer> transfers) {
  Foundation& base = engine_.base;
  carriers_.clear();
  for (const Transfer& transfer : transfers) {
    if (transfer.any_peer || transfer.peer == base.rank()) continue;
    const char* const carrier = base.fabric.link(transfer.peer).port->api->name;
    if (!std::ranges::count(carriers_, carrier)) carriers_.push_back(carrier);
  }
  return base.reports.transfer_row(name, nullptr, carriers_);
}

tutti_status Calls::in_stream(const StreamCall& call, const tutti_options& options, tutti_request** request,
                              const BlockTable* blocks) {
  if (group_) return add_to_group({call, {}, true, blocks}, options, request);
  return put_in_stream(call, {}, options, request, blocks);
}

tutti_status Calls::put_in_stream(StreamCall call, std::span<const Transfer> transfers, const tutti_options& options,
                                  tutti_request** request, const BlockTable* blocks) {
  if (!engine_.lock.has_thread() && engine_.has_channels()) {
    const Hold hold = Hold::locked(engine_.lock);
    engine_.require_mover();
  }
  const Hold hold(engine_.lock);
  engine_.require_sound();
  call.timeout_ns = timeout(options);
  if (!persistent(options)) {
    begin_in_stream(call, transfers, blocks, {.request = request});
    return TUTTI_OK;
  }
  auto made = transfers.empty() ? engine_.operations.make<StreamCollective>(true, call.timeout_ns)
                                : engine_.operations.make<TransferGroup>(true, call.timeout_ns);
  if (transfers.empty())
    made->kind = StreamCollective{call, blocks ? std::optional(*blocks) : std::nullopt};
  else
    made->group().call = call;
  return answer(accept(std::move(made), transfers, options), request);
}

// ---- Groups of calls -----------------------------------------------------------------------------------------

void Calls::open_group() {
  const Hold hold(engine_.lock);
  if (group_)
    throw Failure(TUTTI_INVALID_USAGE,
                  fmt::format("group_begin: a group of {} calls is open: end or cancel it first", group_->size()));
  group_.emplace();
}

void Calls::cancel_group() {
  const Hold hold(engine_.lock);
  if (!group_) throw Failure(TUTTI_INVALID_USAGE, "group_cancel: no group is open");
  group_.reset();
}

tutti_status Calls::add_to_group(GroupedCall made, const tutti_options& options, tutti_request** request) {
  require_plain(options, request);
  group_->calls.push_back(std::move(made));
  return TUTTI_OK;
}

tutti_status Calls::add_to_group(std::span<const Transfer> transfers, const StreamCall& call,
                                 const tutti_options& options, tutti_request** request) {
  require_plain(options, request);
  CallGroup& group = *group_;
  const bool on_stream = std::ranges::any_of(transfers, &Transfer::on_stream);
  if (on_stream && group.in_stream && group.in_stream->stream != call.stream)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  "options.stream differs from that of earlier sends and receives of the group: those of device memory "
                  "go in one stream");
  if (on_stream) group.in_stream = call;
  std::vector<Transfer>& list = on_stream ? group.on_stream : group.transfers;
  list.insert(list.end(), transfers.begin(), transfers.end());
  return TUTTI_OK;
}

tutti_status Calls::end_group(const tutti_options& options, tutti_request** request) {
  const Foundation& base = engine_.base;
  tutti_request* made = nullptr;
  {
    const Hold hold(engine_.lock);
    if (!group_) throw Failure(TUTTI_INVALID_USAGE, "group_end: no group is open: tutti_group_begin opens one");
    CallGroup group = std::move(*group_);
    group_.reset();
    engine_.require_sound();
    for (const auto* transfers : {&group.transfers, &group.on_stream}) {
      std::vector<const Transfer*> sorted;
      check_own(*transfers, base.rank());
      require_apart(*transfers, sorted);
    }
    auto fresh = engine_.breakdown.guard([&] {
      group.divide(base.rank(), base.nranks());
      return engine_.operations.make<CallGroup>(true, timeout(options));
    });
    plan_parts(group);
    fresh->kind = std::move(group);
    made = &accept(std::move(fresh), {}, options);
  }
  return answer(*made, request);
}

// All plans, before anything begins: a call that no algorithm serves ends the group here.
void Calls::plan_parts(CallGroup& group) {
  std::vector<Plan*> pinned;
  try {
    for (GroupPart& part : group.parts()) {
      const GroupedCall& first = group.calls[part.calls.front()];
      if (first.on_stream) continue;
      part.plan =
          &engine_.breakdown.guard([&]() -> Plan& { return engine_.plans.find(part.shape, table_of(first.blocks)); });
      pinned.push_back(part.plan);
      ++part.plan->pins;
    }
  } catch (...) {
    for (Plan* plan : pinned) --plan->pins;
    throw;
  }
}

// ---- Persistent requests -------------------------------------------------------------------------------------

void Calls::start(tutti_request& request) {
  if (!request.persistent)
    throw Failure(TUTTI_INVALID_USAGE,
                  "request_start: the request's call had no TUTTI_PERSISTENT: only a persistent request can be "
                  "started");
  if (!request.complete.load(std::memory_order_acquire))
    throw Failure(TUTTI_INVALID_USAGE,
                  "request_start: the request has not completed its last start: wait for it first");
  const Hold hold(engine_.lock);
  try {
    engine_.require_sound();
    const auto* transfers = std::get_if<TransferGroup>(&request.kind);
    const std::span<const Transfer> given = transfers ? transfers->given : std::span<const Transfer>();
    if (const auto* in_stream = std::get_if<StreamCollective>(&request.kind))
      begin_in_stream(in_stream->call, {}, table_of(in_stream->blocks), {.again = &request});
    else if (std::ranges::any_of(given, &Transfer::on_stream))
      begin_in_stream(transfers->call, given, nullptr, {.again = &request});
    else
      begin(engine_.operations.make_again(request), given);
  } catch (const std::exception& problem) {  // it has not begun
    const Failure failure = failure_of(problem);
    request.status = failure.status;
    request.error = failure.text;
    request.complete.store(true, std::memory_order_release);
    throw;
  }
}

void Calls::release(const tutti_request& request) {
  const Hold hold = Hold::visit(engine_.lock);
  Operations::unpin(request);
}

// ---- Operators of the application ------------------------------------------------------------------------------

uint32_t Calls::make_op(UserOperator op) {
  const Hold hold(engine_.lock);
  return engine_.operators.add(std::move(op));
}

void Calls::free_op(uint32_t op) {
  const Hold hold(engine_.lock);
  if (group_)
    throw Failure(TUTTI_INVALID_USAGE,
                  "op_free: a group of calls is open, which may use the operator: end or cancel it "
                  "first");
  if (!engine_.plans.drop(op))
    throw Failure(TUTTI_INVALID_USAGE, fmt::format("op_free: operator \"{}\" is used by an operation that has not "
                                                   "ended: wait for its request first, and free a persistent request",
                                                   engine_.operators.find(op)->name));
  engine_.operators.remove(op);
}

}  // namespace tutti::core
