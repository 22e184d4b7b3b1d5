// SPDX-License-Identifier: Apache-2.0
#include "comm/waits.hpp"

#include <new>

#include "base/clock.hpp"

namespace tutti::core {

// Its polls are its own, since a small call is over after a few: they advance this call and what else is pending, and
// skip the rest. After a poll it goes on as all waits do.
tutti_status Waits::run(tutti_request& request) {
  Operations& operations = engine_.operations;
  Breakdown& breakdown = engine_.breakdown;
  Execution& execution = operations.execution(request);
  Trace* const trace = engine_.base.reports.recorder().trace();
  uint32_t fruitless = 0, polls_beyond = 0;
  try {
    while (!breakdown.begun() && !operations.launch_blocking()) {
      const bool moved = engine_.progress();
      if (trace) engine_.trace_wait(*trace, moved);
      if (!moved) engine_.progress_ports(Ports::used);
      engine_.waiter.pass(fruitless, moved);
    }
    for (fruitless = 0; !breakdown.begun() && !execution.advance();) {
      bool moved = execution.take_moved();
      const bool others = engine_.point_to_point.active() || (engine_.streams && engine_.streams->pending());
      moved |= others ? engine_.progress() : engine_.progress_ports(Ports::busy);
      if (trace) engine_.trace_wait(*trace, moved);
      if (!moved && engine_.waiter.may_poll_on(polls_beyond) && execution.waits_beyond()) continue;
      polls_beyond = 0;
      engine_.waiter.pass(fruitless, moved);
    }
    if (!breakdown.begun()) operations.listen(request);
  } catch (const std::exception& problem) {
    breakdown.fail(problem);
  }
  if (!request.complete.load(std::memory_order_relaxed))
    operations.complete(request, breakdown.begun() ? breakdown.error() : tutti_status{TUTTI_OK});
  return result_of(request);
}

tutti_status Waits::finish(tutti_request& request) {
  for (uint32_t fruitless = 0; !request.complete.load(std::memory_order_relaxed);) wait_on(request, fruitless);
  return result_of(request);
}

tutti_status Waits::result_of(const tutti_request& request) {
  if (request.status == TUTTI_OK) return TUTTI_OK;
  try {
    return engine_.breakdown.remember(request.status, request.error);
  } catch (const std::bad_alloc&) {
    return engine_.breakdown.remember(request.status, "out of memory");
  }
}

tutti_status Waits::test(tutti_request& request) {
  if (!request.complete.load(std::memory_order_acquire)) {
    const Hold hold = Hold::visit(engine_.lock);
    try {
      if (!engine_.progress()) engine_.look_around(false);
    } catch (const std::exception& problem) {
      engine_.breakdown.fail(problem);
    }
  }
  return request.complete.load(std::memory_order_acquire) ? result_of(request) : tutti_status{TUTTI_AGAIN};
}

// One turn of a wait for the request.
void Waits::wait_on(const tutti_request& request, uint32_t& fruitless, uint64_t deadline_ns) {
  try {
    const bool moved = engine_.progress();
    if (Trace* trace = engine_.base.reports.recorder().trace()) engine_.trace_wait(*trace, moved);
    engine_.awaited = &request;
    engine_.waiter.pass(fruitless, moved || request.complete.load(std::memory_order_acquire), deadline_ns);
  } catch (const std::exception& problem) {  // a request is in use until it is complete
    engine_.breakdown.fail(problem);
  }
  engine_.awaited = nullptr;
}

tutti_status Waits::wait(tutti_request& request, uint64_t timeout_ns) {
  constexpr uint32_t polls_at_once = 8;  // at the beginning of a wait, that move nothing: without clock and lock
  const uint64_t deadline = deadline_after(timeout_ns);
  const bool limited = deadline != Waiter::for_ever;
  uint32_t of_this_wait = 0;
  uint32_t& fruitless = limited ? fruitless_polls_ : of_this_wait;
  const Presence here(engine_.lock);
  for (bool first = true; !request.complete.load(std::memory_order_acquire); first = false) {
    const Hold hold = Hold::visit(engine_.lock);
    if (first) engine_.operations.awaits(request);
    do {
      wait_on(request, fruitless, deadline);
    } while (fruitless - 1 < polls_at_once && !request.complete.load(std::memory_order_acquire));
    if (!limited || clock_ns() < deadline || request.complete.load(std::memory_order_acquire)) continue;
    engine_.operations.record_awaited(nullptr);
    return TUTTI_AGAIN;
  }
  return result_of(request);
}

tutti_status Waits::probe(tutti_envelope& envelope, uint64_t timeout_ns) {
  const uint64_t deadline = deadline_after(timeout_ns);
  PointToPoint& point_to_point = engine_.point_to_point;
  const Presence here(engine_.lock);
  for (uint32_t fruitless = 0;;) {
    const Hold hold = Hold::visit(engine_.lock);
    engine_.require_sound();
    point_to_point.watch(true);
    const bool moved = engine_.progress();
    point_to_point.watch(false);
    engine_.breakdown.require_none();
    if (const auto found = point_to_point.probe(envelope)) {
      envelope = *found;
      return TUTTI_OK;
    }
    if (deadline != Waiter::for_ever && clock_ns() >= deadline) return TUTTI_AGAIN;
    engine_.waiter.pass(fruitless, moved, deadline);
  }
}

}  // namespace tutti::core
