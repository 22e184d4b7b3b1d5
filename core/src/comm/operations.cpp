// SPDX-License-Identifier: Apache-2.0
#include "comm/operations.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <utility>

#include "base/clock.hpp"
#include "comm/foundation.hpp"
#include "record/reports.hpp"

namespace tutti::core {

Operations::Operations(Communicator& comm, Foundation& base, PortEvents& events, Breakdown& breakdown,
                       CallCheck& call_check, const WindowList& memory_windows)
    : comm_(comm),
      base_(base),
      reports_(base.reports),
      events_(events),
      breakdown_(breakdown),
      call_check_(call_check),
      memory_windows_(memory_windows),
      windows_(base.configuration.windows),
      trials_(base.topology.processors_of(base.rank()) < 1) {
  for (uint32_t w = 0; w < windows_.size(); ++w) windows_[w].execution.init(w * base.configuration.lanes);
}

// ---- All kinds ---------------------------------------------------------------------------------------------

Operations::Request Operations::make(RequestKind kind, bool lasting, uint64_t timeout_ns) {
  Request request(pool_->take(kind.index()), {pool_.get()});
  if (!request) {
    request.reset(new tutti_request);
    request->kind = std::move(kind);
  }
  if (lasting) request->pool = pool_;
  request->persistent = false;
  request->owner = nullptr;
  request->part.reset();
  request->comm = &comm_;
  renew(*request, timeout_ns);
  return request;
}

void Operations::renew(tutti_request& request, uint64_t timeout_ns) const {
  request.timeout_ns = timeout_ns;
  request.begin_ticks = ticks();
  request.next = nullptr;
  request.status = TUTTI_OK;
  request.error.clear();
  request.complete.store(false, std::memory_order_relaxed);
}

void Operations::record_end(const tutti_request& request, tutti_status status) {
  if (std::holds_alternative<CallGroup>(request.kind)) return;  // its parts have
  const uint64_t now = ticks();
  reports_.count(request.service, request.bytes, now - request.begin_ticks);
  FlightRecorder& recorder = reports_.recorder();
  if (const auto* group = std::get_if<TransferGroup>(&request.kind)) {
    for (const Transfer& transfer : group->transfers)  // on the host each has ended by itself
      if (transfer.on_stream) recorder.end_transfer(transfer.record, now, status);
  } else {
    recorder.end(request.sequence, now, status);
  }
}

void Operations::complete(tutti_request& request, tutti_status status) {
  if (std::holds_alternative<HostCollective>(request.kind))
    end_collective(request, status);
  else
    record_end(request, status);
  request.status = status;
  if (status < 0 && request.error.empty()) try {
      request.error = breakdown_.text();
    } catch (const std::bad_alloc&) {  // its status says so
    }
  if (&request != &blocking_) --pending_;
  const bool returns = &request != &blocking_ && !request.pool;
  tutti_request* const group = request.owner;
  if (!group) {
    request.complete.store(true, std::memory_order_release);  // from here on its owner may free it
    if (returns) pool_->give_back(request);
    return;
  }
  const auto part = request.part;
  std::string error = std::move(request.error);
  request.complete.store(true, std::memory_order_release);
  pool_->give_back(request);
  part_ended(*group, part, status, std::move(error));
}

void Operations::end_collective(tutti_request& request, tutti_status status) {
  const HostCollective& collective = request.collective();
  Plan& plan = *collective.plan;
  const uint64_t now = ticks(), spent = now - request.begin_ticks;
  reports_.count(request.service, request.bytes, spent);
  reports_.recorder().end(request.sequence, now, status);
  if (collective.timed && plan.moves && status == TUTTI_OK)
    plan.moves->report(plan.launches - 1, spent, plan.call_bytes);
  --plan.pins;
  if (Window& window = windows_[collective.window]; window.running == &request) window.running = nullptr;
}

void Operations::part_ended(tutti_request& request, std::optional<uint32_t> part, tutti_status status,
                            std::string error) {
  auto& group = std::get<CallGroup>(request.kind);
  if (status == TUTTI_OK) {
    if (part) group.unpack(group.parts()[*part]);
  } else if (request.status == TUTTI_OK) {
    request.status = status;
    request.error = std::move(error);
  }
  if (--group.open) return;
  if (!request.persistent) unpin(request);
  complete(request, request.status);
}

void Operations::check_notices(const Call& mine) const {
  if (!call_check_.has_notices()) return;
  if (const auto difference = call_check_.compare_notices(mine))
    breakdown_.fail({TUTTI_MISMATCH, difference->culprit, difference->reason});
  breakdown_.require_none();
}

tutti_request& Operations::keep(Request made) {
  if (const auto* collective = std::get_if<HostCollective>(&made->kind)) ++collective->plan->pins;
  made->persistent = true;
  made->complete.store(true, std::memory_order_release);
  return *made.release();
}

// ---- Sends and receives ------------------------------------------------------------------------------------

void Operations::announce(std::vector<Transfer>& transfers, PointToPoint& point_to_point) const {
  for (Transfer& transfer : transfers) {
    if (transfer.peer == base_.rank() || breakdown_.begun()) continue;
    point_to_point.start(transfer);
    if (const auto difference = point_to_point.take_difference())
      breakdown_.fail({TUTTI_MISMATCH, difference->culprit, difference->reason});
  }
}

void Operations::begin(tutti_request& request, std::span<const Transfer> transfers) {
  TransferGroup& group = request.group();
  group.transfers.assign(transfers.begin(), transfers.end());
  group.open = group.transfers.size() + 1;
  request.bytes = 0;
  for (Transfer& transfer : group.transfers) {
    transfer.request = &request;
    transfer.timeout_ns = request.timeout_ns;
    transfer.record = reports_.recorder().begin_transfer(
        {transfer.bytes, transfer.sending, transfer.any_tag, transfer.peer, transfer.tag}, request.service,
        request.begin_ticks);
    request.bytes += transfer.bytes;
  }
}

void Operations::ended(Transfer& transfer, tutti_status status, const std::string& error) {
  tutti_request& request = *transfer.request;
  transfer.done = true;
  if (transfer.on_stream) {  // the request completes when the device has come to its end, too
    --request.group().open;
    return;
  }
  reports_.recorder().end_transfer(transfer.record, ticks(), status);
  if (status < 0 && request.status == TUTTI_OK) {
    request.status = status;
    request.error = own_error(error);
  }
  all_begun(request);
}

void Operations::all_begun(tutti_request& request) {
  if (--request.group().open == 0) complete(request, request.status);
}

const Transfer* Operations::unmatched(const tutti_request& request) {
  const auto* group = std::get_if<TransferGroup>(&request.kind);
  if (!group || group->open == 1) return nullptr;  // in a stream all_begun() is never called
  const auto found = std::ranges::find(group->transfers, false, &Transfer::done);
  return found == group->transfers.end() ? nullptr : &*found;
}

// A transfer's error with the place where it was met, unless it is that of the communicator's end.
std::string Operations::own_error(const std::string& error) const try {
  return breakdown_.status() == TUTTI_OK ? fmt::format("rank {}: {}: {}", base_.rank(), base_.name(), error) : error;
} catch (const std::bad_alloc&) {
  return {};
}

// ---- Collectives on host memory ----------------------------------------------------------------------------

void Operations::start(tutti_request& request) {
  HostCollective& collective = request.collective();
  Plan& plan = *collective.plan;
  if (first_) first_->collective().timed = false;
  collective.timed = !first_ && &request == &blocking_;
  request.sequence = next_sequence_++;
  request.service = plan.service;
  request.bytes = plan.call_bytes;
  collective.window = static_cast<uint32_t>(request.sequence % windows_.size());
  const bool changes = plan.fresh || has_unequal_blocks(plan.shape.collective);
  if (changes || plan.recorded.operation.service != static_cast<uint16_t>(plan.service))
    plan.recorded = RecordedCall(call_of(plan, 0, 0), plan.shape.in_place != 0, plan.service, plan.slices);
  collective.mark =
      reports_.recorder().begin(plan.recorded, request.sequence, collective.buffers.tag, request.begin_ticks);
  reports_.set_service(plan.shape.collective, plan.service, plan.slices, plan.schedule_hash);
  ++plan.pins;
}

tutti_request& Operations::begin_blocking(Plan& plan, const HostBuffers& buffers, uint64_t timeout_ns) {
  renew(blocking_, timeout_ns);
  HostCollective& collective = blocking_.collective();
  collective.plan = &plan;
  collective.buffers = buffers;
  collective.launched = false;
  collective.last_progress_ns = 0;
  start(blocking_);
  return blocking_;
}

tutti_request& Operations::begin(Request made) {
  tutti_request& request = pend(std::move(made));
  HostCollective& collective = request.collective();
  collective = {collective.plan, collective.buffers};
  start(request);
  *end_ = &request;
  end_ = &request.next;
  return request;
}

void Operations::unpin(const tutti_request& request) {
  if (const auto* collective = std::get_if<HostCollective>(&request.kind)) --collective->plan->pins;
  if (const auto* group = std::get_if<CallGroup>(&request.kind))
    for (const GroupPart& part : group->parts())
      if (part.plan) --part.plan->pins;
}

// The plan's links are connected, for the first time. Some may be served by other transports than when it was bound.
void Operations::update_transports(Plan& plan) {
  if (plan.native) return;
  std::string transports = transports_of(plan);
  if (transports == plan.transports) return;
  plan.transports = std::move(transports);
  const uint32_t before = plan.service;
  plan.service = reports_.row(collective_name(plan.shape.collective), plan.algorithm, plan.transports);
  reports_.move(plan.shape.collective, plan.schedule_hash, before, plan.service);
  plan.moves = nullptr;
}

// Launches a collective when its window is free and its links are there.
bool Operations::launch(tutti_request& request) {
  Window& window = window_of(request);
  HostCollective& collective = request.collective();
  Plan& plan = *collective.plan;
  if (window.running || !(plan.brief || connect(plan.links))) return false;
  if (plan.fresh) update_transports(plan);
  if (request.service != plan.service) {
    request.service = plan.service;
    reports_.recorder().set_service(request.sequence, plan.service);
  }
  const HostBuffers& buffers = collective.buffers;
  if (call_check_.checked()) {
    if (!call_check_.check(call_of(plan, request.sequence, buffers.tag), plan.unequal.table)) return false;
  } else if (plan.fresh) {
    call_check_.notify(call_of(plan, request.sequence, buffers.tag), plan.links);
  }
  static_assert(BriefPlan::most_bytes < Trace::least_step_call);
  if (plan.brief) {
    window.execution.launch_brief(plan, collective.mark, buffers.in, buffers.out);
  } else {
    Trace* const trace = reports_.recorder().trace();
    window.execution.record_into(trace && plan.call_bytes >= Trace::least_step_call ? trace : nullptr,
                                 request.sequence);
    if (!plan.moves)
      plan.moves = &trials_.of(plan.service, {plan.call_bytes, sends_by_reference(plan), only_sends(plan)});
    window.execution.launch(plan, collective.mark, buffers.in, buffers.out, base_.fabric.ports(),
                            plan.moves->next(plan.launches++), memory_windows_, buffers.factor);
  }
  window.running = &request;
  collective.launched = true;
  return true;
}

void Operations::awaits(const tutti_request& request) {
  constexpr uint64_t at_once_ns = 20'000;
  if (first_ != &request || request.next) return;
  HostCollective& collective = first_->collective();
  if (ticks_to_ns(ticks() - collective.begun_ticks) < at_once_ns) collective.timed = true;
}

bool Operations::listen(const tutti_request& request) {
  Plan& plan = *request.collective().plan;
  if (!plan.fresh) return true;
  plan.fresh = false;
  plan.brief = make_brief(plan);
  base_.fabric.progress(Ports::all, events_);
  breakdown_.carry_out();
  return !breakdown_.begun();
}

bool Operations::advance() {
  bool moved = false;
  bool may_launch = true;
  for (tutti_request** at = &first_; *at;) {
    tutti_request& request = **at;
    if (!request.collective().launched && !(may_launch && launch(request))) {
      may_launch = false;
      at = &request.next;
      continue;
    }
    Execution& on = execution(request);
    const bool over = on.advance();
    moved |= on.take_moved();
    if (!over) {
      at = &request.next;
      continue;
    }
    if (!listen(request)) return true;
    *at = request.next;
    if (end_ == &request.next) end_ = at;
    moved = true;
    complete(request, TUTTI_OK);
  }
  return moved;
}

bool Operations::all_launched() const {
  for (const tutti_request* request = first_; request; request = request->next)
    if (!request->collective().launched) return false;
  return true;
}

const tutti_request* Operations::oldest() const {
  return !first_ && !blocking_.complete.load(std::memory_order_relaxed) ? &blocking_ : first_;
}

const tutti_request* Operations::overdue(uint64_t now_ns) {
  bool any_moved = false;
  const auto late = [&](tutti_request& request) {
    HostCollective& collective = request.collective();
    // A call that waits behind others has no deadline of its own until its turn comes: they have theirs.
    const bool first = &request == &blocking_ ? !first_ : &request == first_;
    const bool moved = collective.launched ? execution(request).take_progress() : !first;
    if (moved || collective.last_progress_ns == 0) {
      collective.last_progress_ns = now_ns;
      any_moved = true;
    }
    return now_ns - collective.last_progress_ns > request.timeout_ns;
  };
  const tutti_request* found = nullptr;
  if (!blocking_.complete.load(std::memory_order_relaxed) && late(blocking_)) found = &blocking_;
  for (tutti_request* request = first_; request && !found; request = request->next)
    if (late(*request)) found = request;
  record_waits(now_ns, any_moved && !found);
  return found;
}

// Records where the oldest collective under way stands, for observers outside the process.
void Operations::record_waits(uint64_t now_ns, bool moved) {
  reports_.recorder().look(now_ns, ticks(), moved);
  const tutti_request* request = oldest();
  std::array<tutti_flight_wait, TUTTI_FLIGHT_WAITS> waits;
  const bool launched = request && request->collective().launched;
  const size_t n = launched ? execution(*request).waits(request->sequence, waits) : 0;
  reports_.recorder().waits({waits.data(), n});
}

void Operations::record_awaited(const tutti_request* request) {
  if (!request && !blocking_.complete.load(std::memory_order_relaxed)) request = &blocking_;
  uint64_t awaited = 0;
  if (const auto* group = request ? std::get_if<TransferGroup>(&request->kind) : nullptr) {
    const auto open = std::ranges::find(group->transfers, false, &Transfer::done);
    if (open != group->transfers.end()) awaited = (open->record + 1) | TUTTI_FLIGHT_TRANSFER;
  } else if (request) {
    if (std::holds_alternative<CallGroup>(request->kind)) {  // the oldest of its parts
      const tutti_request* part = first_;
      while (part && part->owner != request) part = part->next;
      request = part;
    }
    if (request) awaited = request->sequence + 1;
  }
  reports_.recorder().awaits(awaited);
}

std::optional<uint64_t> Operations::oldest_sequence() const {
  const tutti_request* request = oldest();
  return request ? std::optional(request->sequence) : std::nullopt;
}

std::optional<tutti_trace_step> Operations::waited_for() const {
  const tutti_request* request = oldest();
  if (!request) return std::nullopt;
  const HostCollective& collective = request->collective();
  if (collective.launched) return window_of(*request).execution.waited_for(request->sequence);
  const auto link = std::ranges::find(collective.plan->links, nullptr, &Link::handle);
  if (link == collective.plan->links.end()) return std::nullopt;
  tutti_trace_step connecting{};
  connecting.kind = TUTTI_TRACE_WAIT;
  connecting.peer = (*link)->peer;
  connecting.sequence = request->sequence;
  return connecting;
}

std::string Operations::standpoint() const {
  const bool blocking = !blocking_.complete.load(std::memory_order_relaxed);
  const tutti_request* request = blocking ? &blocking_ : first_;
  if (!request) return {};
  const HostCollective& collective = request->collective();
  const Plan& plan = *collective.plan;
  std::string where = collective.launched ? window_of(*request).execution.where() : call_check_.where();
  if (where.empty()) where = "its start: links are being connected, or earlier operations go on";
  return fmt::format("{} ({}{}), at {}", call_name(call_of(plan, request->sequence, collective.buffers.tag)),
                     plan.algorithm, plan.transports.empty() ? "" : " over " + plan.transports, where);
}

// ---- The end of the communicator ---------------------------------------------------------------------------

bool Operations::lent() const {
  for (const Window& window : windows_)
    if (window.running && window.execution.lent()) return true;
  return false;
}

void Operations::abandon() {
  for (Window& window : windows_) window.execution.abandon();
}

void Operations::fail_all(tutti_status status) {
  if (!blocking_.complete.load(std::memory_order_relaxed)) complete(blocking_, status);
  while (first_) {
    tutti_request& request = *first_;
    first_ = request.next;
    if (!first_) end_ = &first_;
    complete(request, status);
  }
}

}  // namespace tutti::core
