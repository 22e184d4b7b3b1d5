// SPDX-License-Identifier: Apache-2.0
//
// Groups of sends and receives, and those of device memory, whose call returns when the work is in the stream.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>

#include "bootstrap/failure.hpp"
#include "comm/communicator_hold.hpp"
#include "plugins/host.hpp"

namespace tutti::core {

tutti_status Communicator::exchange(const char* name, std::span<const Transfer> transfers, const StreamCall& call,
                                    const tutti_options* options, tutti_request** request) {
  return std::ranges::any_of(transfers, &Transfer::on_stream) ? exchange_in_stream(call, transfers, options, request)
                                                              : exchange_on_host(name, transfers, options, request);
}

// A blocking call that is alone waits inside, as a collective does: it needs no lock, and its request returns by
// itself.
tutti_status Communicator::exchange_on_host(const char* name, std::span<const Transfer> transfers,
                                            const tutti_options* options, tutti_request** request) {
  check_own(transfers, rank_);
  tutti_request* pending = nullptr;
  {
    const Hold hold(*this);
    if (breakdown_.pending()) look_around();
    breakdown_.require_none();
    const bool alone = !request && !operations_.pending();
    auto made = operations_.make<TransferGroup>(!alone, timeout(options));
    made->service = transfer_service(name, transfers);
    operations_.begin(*made, transfers);
    pending = &operations_.pend(std::move(made));
    begin_group(*pending);
    progress();
    if (alone) {
      for (uint32_t fruitless = 0; !pending->complete.load(std::memory_order_relaxed);) wait_on(*pending, fruitless);
      return result_of(*pending);
    }
  }
  if (request) {
    *request = pending;
    return TUTTI_OK;
  }
  const std::unique_ptr<tutti_request, decltype(&tutti_request_free)> owner(pending, tutti_request_free);
  return wait(*pending, UINT64_MAX);
}

void Communicator::begin_group(tutti_request& request) {
  std::vector<Transfer>& group = request.group().transfers;
  try {
    for_each_own(group, rank_, [this](Transfer& send, Transfer& receive) {
      if (send.bytes) std::memcpy(receive.data, send.data, send.bytes);
      for (Transfer* one : {&send, &receive}) operations_.ended(*one, TUTTI_OK, {});
    });
    start(group);
  } catch (const std::exception& problem) {
    breakdown_.fail(cause_of(problem));
  }
  if (breakdown_.begun())  // those that did not begin
    for (Transfer& transfer : group)
      if (!transfer.done) operations_.ended(transfer, async_error(), breakdown_.text());
  operations_.all_begun(request);
}

// The row of the transports that carry these: "shm+tcp".
uint32_t Communicator::transfer_service(const char* name, std::span<const Transfer> transfers) {
  carriers_.clear();
  fabric_.add_carriers(
      [&](const Port& port) {
        return std::ranges::any_of(transfers, [&](const Transfer& transfer) {
          return transfer.peer != rank_ && fabric_.link(transfer.peer).port == &port;
        });
      },
      carriers_);
  return reports_->row(name, "", carriers_);
}

// Tells the other sides of the transfers. A send that met another kind of receive ends the communicator: its bytes may
// be on their way already.
void Communicator::start(std::vector<Transfer>& transfers) {
  for (Transfer& transfer : transfers) {
    if (transfer.peer == rank_ || breakdown_.begun()) continue;
    point_to_point_.start(transfer);
    if (const auto difference = point_to_point_.take_difference())
      breakdown_.fail({TUTTI_MISMATCH, difference->culprit, difference->reason});
  }
}

tutti_status Communicator::exchange_in_stream(StreamCall call, std::span<const Transfer> transfers,
                                              const tutti_options* options, tutti_request** request) {
  require_mover();
  const Hold hold(*this);
  begin_on_stream(call, options, request != nullptr);
  if (call.capturing)
    throw Failure(TUTTI_NOT_SUPPORTED, "the stream is being captured: sends and receives cannot be recorded");
  check_own(transfers, rank_);
  waiter_.until([this] { return streams_->has_room(); });
  or_tell([&] { streams_->prepare([&] { await_device(call.timeout_ns); }); });
  breakdown_.require_none();

  const char* kind = transfers.size() > 1 ? "exchange" : transfers[0].sending ? "send" : "receive";
  auto made = or_tell([&] {
    auto fresh = operations_.make<TransferGroup>(request != nullptr, call.timeout_ns);
    fresh->service = reports_->row(kind, "", call.where.tables.memory->name);
    operations_.begin(*fresh, transfers);
    return fresh;
  });
  std::vector<Transfer>& group = made->group().transfers;
  try {
    match(group);
    breakdown_.require_none();
    streams_->open_channels(call, group,
                            [&](const auto& enough) { await_peers(enough, call.timeout_ns, std::nullopt); });
    carriers_ = call.where.tables.memory->name;
    streams_->add_carriers(group, carriers_);
    made->service = reports_->row(kind, "", carriers_);
  } catch (const std::exception& problem) {
    if (!breakdown_.begun()) breakdown_.fail(cause_of(problem));
  }
  breakdown_.require_none();  // also where all have come, and then something broke
  put_transfers(call, group);
  // Nobody may look when the stream has come to the end.
  if (!streams_->has_channels())
    for (const Transfer& transfer : group) reports_->recorder().end_transfer(transfer.record, ticks(), TUTTI_OK);
  return issued(std::move(made), request);
}

// Tells of the transfers, and waits until its sends have been told of, so that no byte comes before them. A rank of
// this process takes part in the call itself. Other receives meet their sends while the device waits for the bytes: the
// operation has the timeout.
void Communicator::match(std::vector<Transfer>& transfers) {
  const auto may_wait = [this](const Transfer& transfer) {
    return !transfer.sending && !(transfer.bytes && topology_.same_process(transfer.peer, rank_));
  };
  for (Transfer& transfer : transfers) {
    transfer.on_stream = true;
    if (transfer.peer == rank_) operations_.ended(transfer, TUTTI_OK, {});
    if (may_wait(transfer)) transfer.timeout_ns = no_timeout;
  }
  start(transfers);
  progress();
  waiter_.until(
      [&] { return std::ranges::all_of(transfers, [&](const Transfer& t) { return t.done || may_wait(t); }); });
}

void Communicator::put_transfers(const StreamCall& call, const std::vector<Transfer>& transfers) {
  Waiter::Round round(waiter_, call.timeout_ns);
  const auto meanwhile = [&] {
    if (!fill_stream(round)) throw stood_still(call);
  };
  try {
    streams_->put(call, transfers, std::ref(meanwhile));
  } catch (const std::exception& problem) {
    end_issue(failure_of(problem));
  }
}

}  // namespace tutti::core
