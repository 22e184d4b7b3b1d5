// SPDX-License-Identifier: Apache-2.0
#include "comm/stream_requests.hpp"

#include <fmt/format.h>

#include <utility>

#include "comm/progress_engine.hpp"

namespace tutti::core {

void StreamRequests::open(uint64_t timeout_ns, const StreamAsker& asker) {
  patience_.emplace(timeout_ns);
  fruitless_ = 0;
  asker_ = asker;
  collective_.reset();
}

void StreamRequests::progress() { engine_.progress(); }
bool StreamRequests::has_ended() const { return engine_.breakdown.begun(); }
void StreamRequests::require_sound() { engine_.breakdown.require_none(); }

bool StreamRequests::turn(bool excused) {
  const bool in_time = engine_.waiter.turn(fruitless_, *patience_, excused);
  if (engine_.breakdown.begun()) throw engine_.breakdown.failure();
  return in_time;
}

void StreamRequests::await(const std::function<bool()>& enough) { engine_.meetings.await(meeting({}), enough); }

std::vector<std::string> StreamRequests::gather(const std::string& mine) {
  return engine_.meetings.gather(meeting(fmt::format("{}, plan {:016x}", call_text(*collective_), collective_->plan)),
                                 mine);
}

template <typename Kind>
void StreamRequests::make(uint32_t service) {
  made_ = asker_.again ? engine_.operations.make_again(*asker_.again)
                       : engine_.operations.make<Kind>(asker_.request != nullptr, patience_->limit_ns());
  made_->service = service;
}

void StreamRequests::enter(Call& mine, const Plan& plan, uint32_t service) {
  Operations& operations = engine_.operations;
  Breakdown& breakdown = engine_.breakdown;
  breakdown.require_none();
  mine.sequence = operations.next_sequence();
  operations.check_notices(mine);
  make<StreamCollective>(service);
  made_->bytes = plan.call_bytes;
  made_->sequence = operations.take_sequence();
  collective_ = mine;
  const RecordedCall recorded(mine, plan.shape.in_place != 0, service, plan.slices);
  engine_.base.reports.recorder().begin(recorded, mine.sequence, mine.tag, made_->begin_ticks);
  if (!engine_.call_check.checked()) return;
  try {  // after the checks of all calls before it
    await([&] { return operations.all_launched() && engine_.call_check.check(mine, plan.unequal.table); });
  } catch (const std::exception& problem) {
    breakdown.fail(problem);
  }
  breakdown.require_none();
}

std::vector<Transfer>& StreamRequests::enter(std::span<const Transfer> transfers, uint32_t service) {
  engine_.breakdown.require_none();
  make<TransferGroup>(service);
  engine_.operations.begin(*made_, transfers);
  std::vector<Transfer>& group = made_->group().transfers;
  for (Transfer& transfer : group) {
    transfer.on_stream = true;
    if (transfer.peer == engine_.base.rank()) engine_.operations.ended(transfer, TUTTI_OK, {});
  }
  return group;
}

tutti_request* StreamRequests::pend(uint32_t service, bool runs) {
  Operations::Request made = std::move(made_);
  made->service = service;
  if (!runs) {
    made->complete.store(true, std::memory_order_release);
    return nullptr;
  }
  if (asker_.group) Operations::join(*made, *asker_.group, std::nullopt);
  tutti_request& pending = engine_.operations.pend(std::move(made));
  if (asker_.request) *asker_.request = &pending;
  return &pending;
}

bool StreamRequests::complete(tutti_request& request) {
  const bool ended = has_ended();
  if (!ended && Operations::unmatched(request)) return false;
  engine_.operations.complete(request, ended ? engine_.breakdown.error() : tutti_status{TUTTI_OK});
  return true;
}

void StreamRequests::fail(const std::exception& problem, StreamState at, const std::string& in_use) {
  Breakdown& breakdown = engine_.breakdown;
  const Operations::Request ends_here = std::move(made_);  // when all that knows it has ended
  if (at == StreamState::checks) return;
  if (at == StreamState::plans) breakdown.guard([] { throw; });
  if (at == StreamState::issues) {
    const Failure failure = failure_of(problem);
    breakdown.fail({failure.status, engine_.base.rank(), failure.text});
  } else {
    breakdown.fail(problem);
  }
  throw Failure(breakdown.error(), breakdown.text() + in_use);
}

void StreamRequests::drain() {
  engine_.poll();
  ActiveEngines::process().progress_others(nullptr);
}

}  // namespace tutti::core
