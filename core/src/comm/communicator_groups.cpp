// SPDX-License-Identifier: Apache-2.0
//
// Groups of calls: remembered from tutti_group_begin on, begun together by tutti_group_end, and complete together.
#include <fmt/format.h>

#include <algorithm>

#include "base/failure.hpp"
#include "comm/communicator_hold.hpp"

namespace tutti::core {
namespace {

// In a group a call has no request: the group has one.
void require_plain(const tutti_options* options, tutti_request** request) {
  if (request)
    throw Failure(
        TUTTI_INVALID_ARGUMENT,
        "request is not NULL, but a group of calls is open, which has one request for all: pass NULL here and "
        "a request to tutti_group_end");
  if (options && options->flags & TUTTI_PERSISTENT)
    throw Failure(TUTTI_INVALID_ARGUMENT,
                  "options.flags has TUTTI_PERSISTENT, but a group of calls is open: pass it to tutti_group_end");
}

}  // namespace

void Communicator::open_group() {
  const Hold hold(*this);
  if (open_group_)
    throw Failure(TUTTI_INVALID_USAGE,
                  fmt::format("group_begin: a group of {} calls is open: end or cancel it first", open_group_->size()));
  open_group_.emplace();
}

void Communicator::cancel_group() {
  const Hold hold(*this);
  if (!open_group_) throw Failure(TUTTI_INVALID_USAGE, "group_cancel: no group is open");
  open_group_.reset();
}

tutti_status Communicator::add_to_group(GroupedCall made, const tutti_options* options, tutti_request** request) {
  require_plain(options, request);
  open_group_->calls.push_back(std::move(made));
  return TUTTI_OK;
}

tutti_status Communicator::add_to_group(std::span<const Transfer> transfers, const StreamCall& call,
                                        const tutti_options* options, tutti_request** request) {
  require_plain(options, request);
  CallGroup& group = *open_group_;
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

tutti_status Communicator::end_group(const tutti_options& options, tutti_request** request) {
  tutti_request* pending = nullptr;
  {
    const Hold hold(*this);
    if (!open_group_) throw Failure(TUTTI_INVALID_USAGE, "group_end: no group is open: tutti_group_begin opens one");
    CallGroup group = std::move(*open_group_);
    open_group_.reset();
    require_sound();
    for (const auto* transfers : {&group.transfers, &group.on_stream}) {
      std::vector<const Transfer*> sorted;
      check_own(*transfers, rank_);
      require_apart(*transfers, sorted);
    }
    auto made = breakdown_.or_tell([&] {
      group.divide(rank_, nranks_);
      return operations_.make<CallGroup>(true, timeout(&options));
    });
    plan_calls(group);
    made->kind = std::move(group);
    if (persistent(&options)) {
      *request = &Operations::keep(std::move(made));
      return TUTTI_OK;
    }
    pending = &begin_calls(std::move(made));
  }
  if (!request) return wait_for(*pending);
  *request = pending;
  return TUTTI_OK;
}

// All plans, before anything begins: a call that no algorithm serves ends the group here.
void Communicator::plan_calls(CallGroup& group) {
  std::vector<Plan*> pinned;
  try {
    for (GroupPart& part : group.parts()) {
      const GroupedCall& first = group.calls[part.calls.front()];
      if (first.on_stream) continue;
      const BlockTable* blocks = first.blocks ? &*first.blocks : nullptr;
      part.plan = &breakdown_.or_tell([&]() -> Plan& { return plans_.find(part.shape, blocks); });
      pinned.push_back(part.plan);
      ++part.plan->pins;
    }
  } catch (...) {
    for (Plan* plan : pinned) --plan->pins;
    throw;
  }
}

tutti_request& Communicator::begin_calls(Operations::Request made) {
  tutti_request& request = operations_.pend(std::move(made));
  std::get<CallGroup>(request.kind).open = 1;
  try {
    begin_parts(request);
  } catch (const std::exception& problem) {  // others wait for what has not begun here
    breakdown_.fail(problem);
    if (request.status == TUTTI_OK) {
      request.status = async_error();
      request.error = breakdown_.text();
    }
  }
  operations_.all_parts_begun(request);
  progress();
  return request;
}

// All ranks begin the collectives of a group in the order of its parts.
void Communicator::begin_parts(tutti_request& request) {
  auto& group = std::get<CallGroup>(request.kind);
  for (uint32_t p = 0; p < group.parts().size(); ++p) {
    const GroupPart& part = group.parts()[p];
    if (!part.plan) {
      const GroupedCall& one = group.calls[part.calls.front()];
      StreamCall call = one.call;
      call.timeout_ns = request.timeout_ns;
      streams_->begin(call, one.blocks ? &*one.blocks : nullptr, {.group = &request});
      continue;
    }
    operations_.hear_news(call_of(*part.plan, operations_.next_sequence()));
    auto one = operations_.make<HostCollective>(false, request.timeout_ns);
    Operations::join(*one, request, p);
    operations_.begin(std::move(one), *part.plan, group.buffers(part));
  }
  if (!group.transfers.empty()) {
    auto one = operations_.make<TransferGroup>(false, request.timeout_ns);
    one->service = transfer_service("exchange", group.transfers);
    begin_group(std::move(one), group.transfers, &request);
  }
  if (!group.on_stream.empty()) {
    StreamCall call = *group.in_stream;
    call.timeout_ns = request.timeout_ns;
    streams_->begin(call, group.on_stream, {.group = &request});
  }
}

}  // namespace tutti::core
