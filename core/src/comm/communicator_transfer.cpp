// SPDX-License-Identifier: Apache-2.0
//
// Groups of sends and receives, and those of device memory, whose call returns when the work is in the stream.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <iterator>
#include <set>

#include "bootstrap/failure.hpp"
#include "comm/communicator_hold.hpp"
#include "plugins/host.hpp"

namespace tutti::core {

tutti_status Communicator::exchange(const char* name, std::vector<Transfer> transfers, const StreamRunner::Call& call,
                                    const tutti_options* options, tutti_request** request) {
  require_apart(transfers);
  if (std::ranges::none_of(transfers, &Transfer::on_stream))
    return exchange_on_host(name, std::move(transfers), options, request);
  // Empty ones have no memory: they are matched on the host meanwhile.
  std::vector<Transfer> empty;
  std::ranges::copy_if(transfers, std::back_inserter(empty), std::logical_not<>(), &Transfer::on_stream);
  std::erase_if(transfers, [](const Transfer& transfer) { return !transfer.on_stream; });
  tutti_request* matched = nullptr;
  if (!empty.empty()) exchange_on_host(name, std::move(empty), options, &matched);
  const std::unique_ptr<tutti_request, decltype(&tutti_request_free)> owner(matched, tutti_request_free);
  exchange_in_stream(call, std::move(transfers), options, request);
  const tutti_status status = matched ? wait(*matched, UINT64_MAX) : tutti_status{TUTTI_OK};
  if (status < 0 && request) tutti_request_free(std::exchange(*request, nullptr));
  return status;
}

tutti_status Communicator::exchange_on_host(const char* name, std::vector<Transfer> transfers,
                                            const tutti_options* options, tutti_request** request) {
  const auto own = match_own(transfers, rank_);
  tutti_request* pending = nullptr;
  {
    const Hold hold(*this);
    if (breakdown_.pending()) look_around();
    breakdown_.require_none();
    auto made = operations_.make(true, timeout(options));
    made->service = reports_->row(name, "", carriers(transfers));
    operations_.begin(*made, std::move(transfers));
    pending = &operations_.pend(std::move(made));
    std::vector<Transfer>& group = pending->group().transfers;
    try {
      for (const auto& [send, receive] : own) {
        if (send->bytes) std::memcpy(receive->data, send->data, send->bytes);
        operations_.ended(*send);
        operations_.ended(*receive);
      }
      start(group);
    } catch (const std::exception& problem) {
      breakdown_.fail(cause_of(problem));
    }
    if (breakdown_.begun())  // those that did not begin
      for (Transfer& transfer : group)
        if (transfer.peer != rank_ && !transfer.done) {
          transfer.done = true;
          transfer.status = async_error();
          transfer.error = breakdown_.text();
          operations_.ended(transfer);
        }
    operations_.all_begun(*pending);
    progress();
  }
  if (request) {
    *request = pending;
    return TUTTI_OK;
  }
  const std::unique_ptr<tutti_request> owner(pending);
  return wait(*pending, UINT64_MAX);
}

// The transports that carry these: "shm+tcp".
std::string Communicator::carriers(const std::vector<Transfer>& transfers) {
  if (transfers.size() == 1) return fabric_.links()[transfers[0].peer].port->api->name;
  std::set<uint32_t> peers;
  for (const Transfer& transfer : transfers)
    if (transfer.peer != rank_) peers.insert(transfer.peer);
  return fabric_.carriers(peers);
}

// Tells the other sides of the transfers. A send that met another kind of receive ends the communicator: its bytes may
// be on their way already.
void Communicator::start(std::vector<Transfer>& transfers) {
  for (Transfer& transfer : transfers) {
    if (transfer.peer == rank_ || breakdown_.begun()) continue;
    point_to_point_.start(&transfer);
    if (const auto difference = point_to_point_.take_difference())
      breakdown_.fail({TUTTI_MISMATCH, difference->culprit, difference->reason});
  }
}

tutti_status Communicator::exchange_in_stream(StreamRunner::Call call, std::vector<Transfer> transfers,
                                              const tutti_options* options, tutti_request** request) {
  require_mover();
  const Hold hold(*this);
  begin_on_stream(call, options, request != nullptr);
  if (call.capturing)
    throw Failure(TUTTI_NOT_SUPPORTED, "the stream is being captured: sends and receives cannot be recorded");
  match_own(transfers, rank_);
  waiter_.until([this] { return streams_->has_room(); });
  or_tell([&] { streams_->prepare([&] { await_device(call.timeout_ns); }); });
  breakdown_.require_none();

  const char* kind = transfers.size() > 1 ? "exchange" : transfers[0].sending ? "send" : "receive";
  const std::string device = call.where.tables.memory->name;
  auto made = or_tell([&] {
    auto fresh = operations_.make(request != nullptr, call.timeout_ns);
    fresh->service = reports_->row(kind, "", device);
    operations_.begin(*fresh, std::move(transfers));
    return fresh;
  });
  std::vector<Transfer>& group = made->group().transfers;
  match(group);
  std::string ways;
  try {
    ways = streams_->open_channels(call, group,
                                   [&](const auto& enough) { await_peers(enough, call.timeout_ns, std::nullopt); });
  } catch (const std::exception& problem) {
    if (!breakdown_.begun()) breakdown_.fail(cause_of(problem));
  }
  breakdown_.require_none();  // also where all have come, and then something broke
  if (!ways.empty()) made->service = reports_->row(kind, "", device + "+" + ways);
  put_transfers(call, group);
  // Nobody may look when the stream has come to the end.
  if (!streams_->has_channels())
    for (const Transfer& transfer : group) reports_->recorder().end_transfer(transfer.record, ticks(), TUTTI_OK);
  return issued(std::move(made), request);
}

// Until each of its sends has been told of and each of its receives has met its send.
void Communicator::match(std::vector<Transfer>& transfers) {
  try {
    start(transfers);
    const auto open = [this](const Transfer& transfer) { return transfer.peer != rank_ && !transfer.done; };
    waiter_.until([&] { return std::ranges::none_of(transfers, open); });
  } catch (const std::exception& problem) {
    breakdown_.fail(cause_of(problem));
  }
  breakdown_.require_none();
}

void Communicator::put_transfers(const StreamRunner::Call& call, const std::vector<Transfer>& transfers) {
  Waiter::Round round(waiter_, call.timeout_ns);
  const auto meanwhile = [&] {
    if (!fill_stream(round)) throw stood_still(call);
  };
  try {
    streams_->put(call, transfers, meanwhile);
  } catch (const std::exception& problem) {
    end_issue(failure_of(problem));
  }
}

}  // namespace tutti::core
