// SPDX-License-Identifier: Apache-2.0
//
// Groups of sends and receives, and those of device memory, whose call returns when the work is in the stream.
#include <fmt/format.h>
#include <sched.h>

#include <algorithm>
#include <cstring>

#include "bootstrap/failure.hpp"
#include "engine/communicator_hold.hpp"
#include "engine/host.hpp"

namespace tutti::core {

// What is alike for all groups: the request has its transfers and its timeout.
void Communicator::record(tutti_request& request) {
  request.comm = this;
  request.alive = alive_;
  request.begin_ticks = ticks();
  request.state = tutti_request::State::running;
  request.complete.store(false, std::memory_order_relaxed);
  request.exchange = true;
  for (Transfer& transfer : request.group) {
    transfer.timeout_ns = request.timeout_ns;
    transfer.record = recorder_->begin_transfer(transfer.sending, transfer.peer, transfer.tag, transfer.bytes,
                                                request.service, request.begin_ticks);
    request.transfer.bytes += transfer.bytes;
  }
}

tutti_status Communicator::exchange(std::vector<Transfer> transfers, const tutti_options* options,
                                    tutti_request** request) {
  auto made = std::make_unique<tutti_request>();
  tutti_request& r = *made;
  r.group = std::move(transfers);
  const auto own = match_own(r.group, rank_);
  {
    const Hold hold(*this);
    if (abort_asked_.load(std::memory_order_relaxed)) look_around();
    require_usable();
    r.timeout_ns = options && options->timeout_ns ? options->timeout_ns : timeout_ns_;
    std::string carriers;
    for (const Port& port : ports_)
      if (std::ranges::any_of(r.group,
                              [&](const Transfer& t) { return t.peer != rank_ && links_[t.peer].port == &port; }))
        carriers += (carriers.empty() ? "" : "+") + std::string(port.api->name);
    r.service = service_row("exchange", "", carriers);
    record(r);
    ++unfinished_;
    r.open = r.group.size() + 1;  // nothing completes before all have begun
    const auto ended = [this, &r] {
      if (--r.open == 0) complete(r, r.transfer.status);
    };
    for (Transfer& transfer : r.group)
      transfer.finished = [this, &r, &transfer, ended] {
        recorder_->end_transfer(transfer.record, ticks(), transfer.status);
        if (transfer.status < 0 && r.transfer.status == TUTTI_OK) {
          r.transfer.status = transfer.status;
          r.transfer.error = broken_status_.load(std::memory_order_relaxed) == TUTTI_OK
                                 ? fmt::format("rank {}: {}: {}", rank_, name_, transfer.error)
                                 : transfer.error;
        }
        ended();
      };
    try {
      for (const auto& [send, receive] : own) {
        if (send->bytes) std::memcpy(receive->data, send->data, send->bytes);
        send->finished();
        receive->finished();
      }
      for (Transfer& transfer : r.group)
        if (transfer.peer != rank_ && !breaking_) {
          point_to_point_.start(&transfer);
          end_difference();
        }
    } catch (const std::exception& problem) {
      break_down(problem);
    }
    if (breaking_)  // those that did not begin
      for (Transfer& transfer : r.group)
        if (transfer.peer != rank_ && !transfer.done) {
          transfer.done = true;
          transfer.status = async_error();
          transfer.error = broken_text_;
          transfer.finished();
        }
    ended();
    progress();
  }
  if (request) {
    *request = made.release();
    return TUTTI_OK;
  }
  return wait(r, UINT64_MAX);
}

tutti_status Communicator::stream_exchange(StreamRunner::Call call, std::vector<Transfer> transfers,
                                           const tutti_options* options, tutti_request** request) {
  require_streams();
  const Hold hold(*this);
  begin_on_stream(call, options, request != nullptr);
  if (call.capturing)
    throw Failure(TUTTI_NOT_SUPPORTED, "the stream is being captured: sends and receives cannot be recorded");
  match_own(transfers, rank_);
  await_streams([this] { return streams_->has_room(); });
  or_tell([&] {
    streams_->require_device(call.where, [this] { await_streams([this] { return streams_->operations() == 0; }); });
  });
  require_usable();

  auto made = or_tell([] { return std::make_unique<tutti_request>(); });
  made->group = std::move(transfers);
  made->timeout_ns = call.timeout_ns;
  const char* kind = made->group.size() > 1 ? "exchange" : made->group[0].sending ? "send" : "receive";
  const std::string device = call.where.tables.memory->name;
  made->service = service_row(kind, "", device);
  record(*made);
  match(made->group);
  std::string carriers;
  try {
    carriers = streams_->open_channels(call, made->group,
                                       [&](const auto& enough) { await_peers(enough, call.timeout_ns, std::nullopt); });
  } catch (const std::exception& problem) {
    if (!breaking_) break_down(problem);
  }
  require_usable();  // also where all have come, and then something broke
  if (!carriers.empty()) made->service = service_row(kind, "", device + "+" + carriers);
  put_transfers(call, made->group);
  // Nobody may look when the stream has come to the end.
  if (!streams_->has_channels())
    for (const Transfer& transfer : made->group) recorder_->end_transfer(transfer.record, ticks(), TUTTI_OK);
  ++unfinished_;
  streams_->issued(made.get());
  if (request)
    *request = made.release();
  else
    own_requests_.push_back(std::move(made));
  progress();
  return TUTTI_OK;
}

// Until each of its sends has been told of and each of its receives has met its send.
void Communicator::match(std::vector<Transfer>& transfers) {
  try {
    for (Transfer& transfer : transfers)
      if (transfer.peer != rank_ && !breaking_) {
        point_to_point_.start(&transfer);
        end_difference();
      }
    const auto open = [this](const Transfer& transfer) { return transfer.peer != rank_ && !transfer.done; };
    while (!breaking_ && std::ranges::any_of(transfers, open)) {
      if (!progress()) sched_yield();
      look_around();
    }
  } catch (const std::exception& problem) {
    break_down(problem);
  }
  require_usable();
}

// A send that met another kind of receive ends the communicator: its bytes may be on their way already.
void Communicator::end_difference() {
  if (const auto difference = point_to_point_.take_difference())
    break_down(TUTTI_MISMATCH, difference->culprit, difference->reason);
}

void Communicator::put_transfers(const StreamRunner::Call& call, const std::vector<Transfer>& transfers) {
  uint64_t limit = clock_ns() + call.timeout_ns;
  const auto meanwhile = [&] {
    const std::string& awaited = streams_->waits_for();
    const bool moved = progress();
    // What the application has put into the stream before may take as long as it likes.
    if (moved || (awaited.empty() && !streams_->reached())) limit = clock_ns() + call.timeout_ns;
    if (!moved) sched_yield();
    look_around();
    if (breaking_) throw Failure(async_error(), broken_text_);
    if (clock_ns() < limit) return;
    const double seconds = static_cast<double>(call.timeout_ns) * 1e-9;
    const std::string text = streams_->begun_text();
    throw Failure(
        TUTTI_TIMEOUT,
        awaited.empty()
            ? fmt::format("{} has stood still for {:.1f} s (TUTTI_TIMEOUT)", streams_->standpoint(), seconds)
            : fmt::format("has waited {:.1f} s (TUTTI_TIMEOUT) in {} on device memory for {}", seconds, text, awaited));
  };
  try {
    streams_->put(call, transfers, meanwhile);
  } catch (const std::exception& problem) {
    end_issue(failure_of(problem));
  }
}

}  // namespace tutti::core
