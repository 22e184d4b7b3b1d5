// SPDX-License-Identifier: Apache-2.0
//
// Persistent requests: calls that are checked and planned once, and started as often as the application wants.
#include <algorithm>

#include "base/clock.hpp"
#include "base/failure.hpp"
#include "comm/communicator_hold.hpp"

namespace tutti::core {

tutti_status Communicator::keep_in_stream(const StreamCall& call, std::span<const Transfer> transfers,
                                          const BlockTable* blocks, tutti_request*& request) {
  if (transfers.empty()) {
    auto made = operations_.make<StreamCollective>(true, call.timeout_ns);
    made->kind = StreamCollective{call, blocks ? std::optional(*blocks) : std::nullopt};
    request = &Operations::keep(std::move(made));
  } else {
    auto made = operations_.make<TransferGroup>(true, call.timeout_ns);
    made->group().given.assign(transfers.begin(), transfers.end());
    made->group().call = call;
    request = &Operations::keep(std::move(made));
  }
  return TUTTI_OK;
}

void Communicator::start(tutti_request& request) {
  if (!request.persistent)
    throw Failure(TUTTI_INVALID_USAGE,
                  "request_start: the request is of a call without TUTTI_PERSISTENT: only one that was made with it is "
                  "started, and any number of times");
  if (!request.complete.load(std::memory_order_acquire))
    throw Failure(TUTTI_INVALID_USAGE,
                  "request_start: the request has not completed its last start: wait for it first");
  const Hold hold(*this);
  try {
    require_sound();
    start_sound(request);
  } catch (const std::exception& problem) {  // it has not begun
    const Failure failure = failure_of(problem);
    request.status = failure.status;
    request.error = failure.text;
    request.complete.store(true, std::memory_order_release);
    throw;
  }
}

void Communicator::start_sound(tutti_request& request) {
  if (const auto* in_stream = std::get_if<StreamCollective>(&request.kind)) {
    const auto& [call, blocks] = *in_stream;
    streams_->begin(call, blocks ? &*blocks : nullptr, {.again = &request});
  } else if (const auto* group = std::get_if<TransferGroup>(&request.kind)) {
    if (std::ranges::any_of(group->given, &Transfer::on_stream))
      streams_->begin(group->call, group->given, {.again = &request});
    else
      begin_group(operations_.make_again(request), group->given);
  } else if (std::holds_alternative<CallGroup>(request.kind)) {
    begin_calls(operations_.make_again(request));
  } else {
    Plan& plan = *request.collective().plan;
    operations_.hear_news(call_of(plan, operations_.next_sequence()));
    operations_.begin_again(request);
    progress();
    if (!request.complete.load(std::memory_order_relaxed)) request.collective().begun_ticks = ticks();
  }
}

void Communicator::release(const tutti_request& request) {
  const Hold hold(*this);
  Operations::let_go(request);
}

}  // namespace tutti::core
