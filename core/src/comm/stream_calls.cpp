// SPDX-License-Identifier: Apache-2.0
#include "comm/stream_calls.hpp"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "base/clock.hpp"
#include "comm/configuration.hpp"
#include "comm/progress.hpp"
#include "record/reports.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t let_go_limit_ns = 5'000'000'000;

}  // namespace

// ---- Collectives -------------------------------------------------------------------------------------------

template <typename Kind>
Operations::Request StreamCalls::make(const StreamCall& call, const Asker& asker) {
  if (asker.again) return parts_.operations.make_again(*asker.again);
  return parts_.operations.make<Kind>(asker.request != nullptr, call.timeout_ns);
}

tutti_status StreamCalls::collective(StreamCall call, const BlockTable* blocks, const Asker& asker) {
  StreamRunner& streams = parts_.streams;
  Breakdown& breakdown = parts_.breakdown;
  Operations& operations = parts_.operations;
  Reports& reports = parts_.reports;
  streams.require_stream(call);
  if (call.capturing && asker.request)
    throw Failure(TUTTI_NOT_SUPPORTED, "the stream is being captured: a recorded call has no request");
  if (call.capturing) streams.require_recordable(call);
  parts_.waiter.until([&] { return streams.has_room(); });
  Patience patience(call.timeout_ns);
  const auto idle = [&] { await_device(patience); };
  StreamPlan& plan = breakdown.or_tell([&]() -> StreamPlan& { return streams.find_plan(call, blocks, idle); });
  breakdown.require_none();
  Call mine = call_of(plan.plan, operations.next_sequence());
  mine.plan ^= streams.places_hash();
  operations.hear_news(mine);

  auto made = breakdown.or_tell([&] { return make<StreamCollective>(call, asker); });
  made->bytes = plan.plan.call_bytes;
  made->service = service(plan);
  made->sequence = call.sequence = operations.take_sequence();
  reports.recorder().begin(mine, plan.plan.shape.in_place, made->service, plan.plan.slices, made->begin_ticks);
  if (parts_.call_check.checked())
    check(mine, plan.plan.unequal.table, patience);
  else if (std::exchange(plan.plan.fresh, false))
    for (Link* link : plan.plan.links)
      if (!parts_.topology.same_process(parts_.rank, link->peer)) untold_.push_back({mine, link});
  StreamPlan& form = open(call, plan, mine, patience);
  made->service = service(form);
  reports.serve(call.shape.collective, made->service, form.plan.slices, form.plan.schedule_hash);
  put(call, form, patience);
  // Where no rank of another process takes part, nobody waits for this one any more, and nobody may look when the
  // stream has come to the end.
  if (!streams.has_channels() || streams.captures()) reports.recorder().end(made->sequence, ticks(), TUTTI_OK);
  return issued(std::move(made), asker);
}

// The call's work is in the stream: the operation is pending from now on, unless it was recorded.
tutti_status StreamCalls::issued(Operations::Request made, const Asker& asker) {
  if (parts_.streams.captures()) {
    parts_.streams.issued(nullptr);
    made->complete.store(true, std::memory_order_release);
    return TUTTI_OK;
  }
  if (asker.group) Operations::join(*made, *asker.group, std::nullopt);
  tutti_request& pending = parts_.operations.pend(std::move(made));
  parts_.streams.issued(&pending);
  if (asker.request) *asker.request = &pending;
  parts_.waiter.progress();
  return TUTTI_OK;
}

uint32_t StreamCalls::service(StreamPlan& plan) {
  if (plan.service) return *plan.service;
  std::string carriers = parts_.device.tables.memory->name;
  if (!plan.plan.transports.empty()) carriers += "+" + plan.plan.transports;
  if (plan.fuses) carriers += "+fused";
  plan.service = parts_.reports.row(collective_name(plan.plan.shape.collective), plan.plan.algorithm, carriers);
  return *plan.service;
}

// In checked mode, after the checks of all calls before it.
void StreamCalls::check(const Call& mine, const BlockTable& blocks, Patience& patience) {
  Breakdown& breakdown = parts_.breakdown;
  const auto agreed = [&] { return parts_.operations.all_launched() && parts_.call_check.check(mine, blocks); };
  try {
    parts_.waiter.until(agreed, patience,
                        [&] { breakdown.fail(breakdown.late(patience.limit_ns(), mine.sequence)); });
  } catch (const std::exception& problem) {
    breakdown.fail(problem);
  }
  breakdown.require_none();
}

// The call has begun: whatever goes wrong concerns all ranks. Returns the form of the plan that is to be issued.
StreamPlan& StreamCalls::open(const StreamCall& call, StreamPlan& plan, const Call& mine, Patience& patience) {
  StreamRunner& streams = parts_.streams;
  StreamPlan* form = &plan;
  try {
    const auto until = [&](const auto& enough) { parts_.meetings.await({"", patience, call.sequence}, enough); };
    const auto gather = [&](const std::string& bytes) {
      const std::string what = fmt::format("{}, plan {:016x}", call_text(mine), mine.plan);
      return parts_.meetings.gather({what, patience, call.sequence}, bytes);
    };
    // By reference: a std::function of either would allocate.
    form = &streams.choose_form(call, plan, std::cref(gather), std::cref(until));
    streams.open_channels(call, *form, std::cref(until));
  } catch (const std::exception& problem) {
    parts_.breakdown.fail(problem);
  }
  parts_.breakdown.require_none();  // also where all have come, and then something broke
  return *form;
}

// Others hear of new plans once the links to them are there. The threads of this process compare their calls when they
// meet.
void StreamCalls::tell() {
  std::erase_if(untold_, [this](const Untold& one) {
    if (!connect(*one.link)) return false;
    parts_.call_check.tell(one.call, {one.link});
    return true;
  });
}

// ---- Sends and receives ------------------------------------------------------------------------------------

tutti_status StreamCalls::exchange(StreamCall call, std::span<const Transfer> transfers, const Asker& asker) {
  StreamRunner& streams = parts_.streams;
  Breakdown& breakdown = parts_.breakdown;
  Operations& operations = parts_.operations;
  Reports& reports = parts_.reports;
  streams.require_stream(call);
  if (call.capturing)
    throw Failure(TUTTI_NOT_SUPPORTED, "the stream is being captured: sends and receives cannot be recorded");
  check_own(transfers, parts_.rank);
  parts_.waiter.until([&] { return streams.has_room(); });
  Patience patience(call.timeout_ns);
  breakdown.or_tell([&] { streams.prepare([&] { await_device(patience); }); });
  breakdown.require_none();

  const char* kind = transfers.size() > 1 ? "exchange" : transfers[0].sending ? "send" : "receive";
  const char* const device = parts_.device.tables.memory->name;
  auto made = breakdown.or_tell([&] {
    auto fresh = make<TransferGroup>(call, asker);
    fresh->service = reports.transfer_row(kind, device, {});
    operations.begin(*fresh, transfers);
    return fresh;
  });
  std::vector<Transfer>& group = made->group().transfers;
  try {
    match(group);
    breakdown.require_none();
    streams.open_channels(group, [&](const auto& enough) { parts_.meetings.await({"", patience}, enough); });
    made->service = reports.transfer_row(kind, device, streams.carriers(group));
  } catch (const std::exception& problem) {
    breakdown.fail(problem);
  }
  breakdown.require_none();  // also where all have come, and then something broke
  put(call, group, patience);
  // Nobody may look when the stream has come to the end.
  if (!streams.has_channels())
    for (const Transfer& transfer : group) reports.recorder().end_transfer(transfer.record, ticks(), TUTTI_OK);
  return issued(std::move(made), asker);
}

// Tells of the transfers, and waits until its sends have been told of, so that no byte comes before them. A rank of
// this process takes part in the call itself. Other receives meet their sends while the device waits for the bytes: the
// operation has the timeout.
void StreamCalls::match(std::vector<Transfer>& transfers) {
  const auto may_wait = [this](const Transfer& transfer) {
    return !transfer.sending && !(transfer.bytes && parts_.topology.same_process(transfer.peer, parts_.rank));
  };
  for (Transfer& transfer : transfers) {
    transfer.on_stream = true;
    if (transfer.peer == parts_.rank) parts_.operations.ended(transfer, TUTTI_OK, {});
    if (may_wait(transfer)) transfer.timeout_ns = no_timeout;
  }
  parts_.operations.tell(transfers, parts_.point_to_point);
  parts_.waiter.progress();
  parts_.waiter.until(
      [&] { return std::ranges::all_of(transfers, [&](const Transfer& t) { return t.done || may_wait(t); }); });
}

// ---- All kinds ---------------------------------------------------------------------------------------------

// Puts the call's work into the stream; what is pending goes on while that waits.
template <typename Work>
void StreamCalls::put(const StreamCall& call, Work& work, Patience& patience) {
  Waiter::Round round(parts_.waiter, patience);
  const auto turn = [&](bool excused) {
    const bool in_time = round.go_on(excused);
    if (parts_.breakdown.begun()) throw parts_.breakdown.failure();
    return in_time;
  };
  try {
    parts_.streams.put(call, work, std::ref(turn));
  } catch (const std::exception& problem) {
    end_issue(failure_of(problem));
  }
}

// It may have failed half-way. What it has left in the stream is spoken of in the communicator's error, or in that of
// this call where the other is known already.
void StreamCalls::end_issue(const Failure& failure) {
  Breakdown& breakdown = parts_.breakdown;
  parts_.streams.failed();
  std::string in_use;
  if (breakdown.begun()) {
    in_use = let_go();
    fail_all(breakdown.error());
  } else {
    breakdown.fail({failure.status, parts_.rank, failure.text});
  }
  throw Failure(breakdown.error(), breakdown.text() + in_use);
}

// Waits until no communicator of the process has work pending on the device. Work of this one has deadlines of its own.
void StreamCalls::await_device(Patience& patience) {
  StreamRunner& streams = parts_.streams;
  const auto late = [&] {
    throw Failure(TUTTI_TIMEOUT, fmt::format("has waited {} for {}: this call needs memory or kernels of {}, "
                                             "which waits until no communicator of the process has work pending there",
                                             parts_.configuration.timeout.text(patience.limit_ns()),
                                             streams.pending_users(), describe(parts_.device)));
  };
  if (!parts_.waiter.until([&] { return streams.may_synchronise(); }, patience, late,
                           [&] { return streams.operations() != 0; }))
    throw parts_.breakdown.failure();
}

bool StreamCalls::advance() {
  if (!untold_.empty()) tell();
  return parts_.streams.advance([this](tutti_request* request) {
    if (Operations::unmatched(*request)) return false;
    parts_.operations.complete(*request, TUTTI_OK);
    return true;
  });
}

std::string StreamCalls::let_go() {
  parts_.waiter.watch([this] { return parts_.streams.let_go(); }, let_go_limit_ns);
  return parts_.streams.in_use();
}

void StreamCalls::fail_all(tutti_status status) {
  parts_.streams.fail_all([&](tutti_request* request) { parts_.operations.complete(*request, status); });
}

}  // namespace tutti::core
