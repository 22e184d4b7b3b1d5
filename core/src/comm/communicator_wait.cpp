// SPDX-License-Identifier: Apache-2.0
//
// How a rank passes the time until its operations are complete: polling, yielding, sleeping; or a thread that does it.
#include <fmt/format.h>
#include <sched.h>

#include "base/clock.hpp"
#include "base/failure.hpp"
#include "comm/communicator_hold.hpp"

namespace tutti::core {

// A mutex is not fair, and the progress thread comes back within nanoseconds: it would take the mutex again before a
// waiting call has woken up. So it steps aside while a call waits.
std::unique_lock<std::mutex> Communicator::lock_for_call() {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) return lock;
  wanted_.fetch_add(1, std::memory_order_relaxed);
  for (uint32_t polls = 0; polls < waiter_.policy().spins && !lock.try_lock(); ++polls) relax();
  if (!lock) lock.lock();
  wanted_.fetch_sub(1, std::memory_order_relaxed);
  return lock;
}

// The caller holds the lock, for which the thread waits.
void Communicator::begin_progress_thread() {
  thread_ = std::thread([this] { progress_thread(); });
  threaded_ = true;
  attended_.fetch_add(1);
}

void Communicator::progress_thread() {
  uint32_t idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    while (wanted_.load(std::memory_order_relaxed)) sched_yield();
    bool busy = false, replays = false;
    {
      const Hold hold(*this, std::unique_lock(mutex_));
      busy = operations_.pending() != 0;
      // Broken: a replay that runs, or is launched yet, comes to its end. The error is told by the communicator.
      replays = !busy && breakdown_.begun() && streams_ && streams_->release_replays();
      try {
        if (busy && progress()) idle = 0;
        if (!busy || idle % Waiter::polls_per_look == 0) look_around(false);
      } catch (const std::exception& problem) {  // no caller would catch it
        breakdown_.fail(problem);
      }
    }
    ++idle;
    if (!busy && !replays)
      idle = await_work() ? 0 : idle;
    else
      waiter_.rest(idle);
  }
}

// Until an operation is pending or the thread has to end, for a while: true when something is pending.
bool Communicator::await_work() {
  std::unique_lock lock(mutex_);
  work_.wait_for(lock, std::chrono::milliseconds(20),
                 [this] { return operations_.pending() != 0 || stop_.load(std::memory_order_relaxed); });
  return operations_.pending() != 0;
}

// ---- Sleep ---------------------------------------------------------------------------------------------------

Fabric::Armed Communicator::arm(std::pmr::vector<pollfd>* descriptors) {
  // Nothing rings when a stream comes to where it needs this thread, or a plugin's own operation ends.
  if ((streams_ && streams_->pending()) || !natives_.empty()) return Fabric::Armed::never;
  return fabric_.arm(descriptors);
}

void Communicator::arm_for(Sleep& sleep) {
  const Fabric::Armed armed = arm(&sleep.descriptors());
  if (armed == Fabric::Armed::yes) return;
  if (armed == Fabric::Armed::busy) sleep.cancel();
  if (armed == Fabric::Armed::never) sleep.shorten();
  if (is_watched()) ActiveEngines::process().wake(*this);
}

// The lock is let go. What threads wait for that sleep meanwhile may be there; else the engine is armed for them.
void Communicator::keep_watched() {
  const bool stirred = std::exchange(stirred_, false);
  if (is_watched() && (stirred || arm(nullptr) != Fabric::Armed::yes)) ActiveEngines::process().wake(*this);
}

void Communicator::join(Sleep& sleep) noexcept try {
  const auto alone = [this] { return pending_.load(std::memory_order_acquire) && !attended_.load(); };
  if (!alone()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return sleep.shorten();  // a thread is inside, and may leave it to us
  if (!alone() || settling_.load(std::memory_order_relaxed) || breakdown_.pending()) return;
  sleep.watch(*this);
  sleep.hear(bootstrap_->control());
  arm_for(sleep);
} catch (const std::bad_alloc&) {
  sleep.shorten();
}

// A call that waits for a request, or for a message, lets the lock go. Others may come in, and end what it waits for.
void Communicator::sleep(uint64_t most_ns) {
  std::unique_lock<std::mutex>* const lock = std::exchange(open_to_others_, nullptr);
  // The look around before may have brought what is waited for, here or by a thread that sleeps.
  if (std::exchange(stirred_, false) || breakdown_.begun()) {
    if (is_watched()) ActiveEngines::process().wake(*this);
    return;
  }
  {
    Sleep sleep;
    sleep.hear(bootstrap_->control());
    if (lock) {
      sleep.watch(*this);
      pending_.store(operations_.pending() + ++asleep_, std::memory_order_release);
    }
    arm_for(sleep);
    ActiveEngines::process().join_others(this, sleep);
    if (lock) lock->unlock();
    sleep.pass(most_ns);
  }
  if (lock) {
    lock->lock();
    --asleep_;
  }
  fabric_.disarm();
}

// ---- Waits -----------------------------------------------------------------------------------------------------

// A blocking call that is alone: it runs at once in this thread.
void Communicator::run_directly(tutti_request& request) {
  uint32_t fruitless = 0;
  Execution& execution = operations_.execution(request);
  Trace* const trace = reports_->recorder().trace();
  try {
    while (!operations_.launch_direct()) {
      const bool moved = progress();
      if (trace) trace_wait(*trace, moved);
      if (!moved) {
        progress_ports(true);
        waiter_.pause(fruitless);
      } else {
        fruitless = 0;
      }
      if (breakdown_.begun()) break;
    }
    for (fruitless = 0; !breakdown_.begun() && !execution.advance();) {
      bool moved = execution.take_moved();
      const bool others = point_to_point_.active() || (streams_ && streams_->pending());
      moved |= others ? progress() : progress_ports(false);
      if (trace) trace_wait(*trace, moved);
      if (moved)
        fruitless = 0;
      else
        waiter_.pause(fruitless);
      if (moved && waiter_.is_due()) look_around();
    }
    if (!breakdown_.begun()) operations_.listen(request);
  } catch (const std::exception& problem) {
    breakdown_.fail(problem);
  }
  if (breakdown_.begun()) {
    if (!request.complete.load(std::memory_order_relaxed)) operations_.complete(request, async_error());
    return;
  }
  operations_.complete(request, TUTTI_OK);
}

tutti_status Communicator::result_of(tutti_request& request) {
  if (request.status == TUTTI_OK) return TUTTI_OK;
  try {
    return remember(request.status, request.error);
  } catch (const std::bad_alloc&) {
    return remember(request.status, "out of memory");
  }
}

tutti_status Communicator::test(tutti_request& request) {
  if (!request.complete.load(std::memory_order_acquire)) {
    const Hold hold(*this);
    try {
      if (!progress()) look_around(false);
    } catch (const std::exception& problem) {
      breakdown_.fail(problem);
    }
  }
  return request.complete.load(std::memory_order_acquire) ? result_of(request) : tutti_status{TUTTI_AGAIN};
}

// A wait has polled: who it waits for, if nothing has moved.
void Communicator::trace_wait(Trace& trace, bool moved) const {
  if (moved) return trace.moved();
  trace.idle([this] {
    if (const auto step = operations_.waited_for()) return *step;
    tutti_trace_step nobody{};
    nobody.kind = TUTTI_TRACE_WAIT;
    nobody.peer = UINT32_MAX;
    if (const Transfer* transfer = point_to_point_.oldest()) {
      nobody.peer = transfer->peer;
      nobody.sequence = transfer->record;
      nobody.bytes = transfer->bytes;
      nobody.flags = TUTTI_TRACE_TRANSFERS | (transfer->sending ? TUTTI_TRACE_SENDING : 0);
    }
    return nobody;
  });
}

// One turn of a wait for the request; the engine is held.
void Communicator::wait_on(const tutti_request& request, uint32_t& fruitless, uint64_t deadline_ns) {
  try {
    const bool moved = progress();
    if (Trace* trace = reports_->recorder().trace()) trace_wait(*trace, moved);
    if (moved) {
      fruitless = 0;
    } else if (!request.complete.load(std::memory_order_acquire)) {
      awaited_ = &request;
      waiter_.pause(fruitless, deadline_ns);
    }
  } catch (const std::exception& problem) {  // a request is in use until it is complete
    breakdown_.fail(problem);
  }
  awaited_ = nullptr;
}

tutti_status Communicator::wait(tutti_request& request, uint64_t timeout_ns) {
  const uint64_t deadline = deadline_after(timeout_ns);
  const bool limited = deadline != Waiter::for_ever;
  uint32_t of_this_wait = 0;
  uint32_t& fruitless = limited ? fruitless_polls_ : of_this_wait;
  const Attendance here(*this);
  for (bool first = true; !request.complete.load(std::memory_order_acquire); first = false) {
    Hold hold(*this);
    if (first) operations_.awaits(request);
    open_to_others_ = hold.lock();
    wait_on(request, fruitless, deadline);
    open_to_others_ = nullptr;
    if (!limited || clock_ns() < deadline || request.complete.load(std::memory_order_acquire)) continue;
    operations_.record_awaited(nullptr);
    return TUTTI_AGAIN;
  }
  return result_of(request);
}

// A blocking call's own request.
tutti_status Communicator::wait_for(tutti_request& request) {
  const std::unique_ptr<tutti_request, decltype(&tutti_request_free)> owner(&request, tutti_request_free);
  return wait(request, UINT64_MAX);
}

tutti_status Communicator::remember(tutti_status status, std::string text) noexcept {
  const tutti_status broken = breakdown_.status();
  if (broken < 0 && !text.starts_with(breakdown_.text())) try {
      text += fmt::format(" (the communicator was broken before: {})", breakdown_.text());
    } catch (const std::bad_alloc&) {  // it stays as it is
    }
  error_text_ = std::move(text);
  return status;
}

}  // namespace tutti::core
