// SPDX-License-Identifier: Apache-2.0
#include "comm/engine_lock.hpp"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <optional>
#include <utility>

#include "base/failure.hpp"
#include "base/process_barrier.hpp"
#include "comm/idle.hpp"
#include "comm/progress_engine.hpp"

namespace tutti::core {

// ---- Hold --------------------------------------------------------------------------------------------------

Hold::Hold(EngineLock& lock, bool visits) : lock_(lock), visits_(visits) {
  if (!lock_.threaded_ && !lock_.pending_.load(std::memory_order_acquire) && process_barrier_ready()) {
    if (lock_.inside_.load(std::memory_order_relaxed))
      throw Failure(TUTTI_INVALID_USAGE,
                    "another thread is inside a call on this communicator: use it from one thread at a time, or make a "
                    "communicator for each thread");
    lock_.inside_.store(true, std::memory_order_relaxed);
    std::atomic_signal_fence(std::memory_order_seq_cst);
    if (!lock_.engine_.breakdown.pending()) return;
    lock_.inside_.store(false, std::memory_order_release);
  }
  mutex_ = lock_.lock_for(visits_);
  enter();
}

Hold::Hold(EngineLock& lock, bool visits, std::unique_lock<std::mutex> mutex)
    : lock_(lock), visits_(visits), mutex_(std::move(mutex)) {
  enter();
}

void Hold::enter() {
  lock_.holder_ = this;
  lock_.engine_.base.fabric.disarm();
}

Hold::~Hold() {
  if (mutex_) {
    lock_.keep_watched();
    lock_.holder_ = nullptr;
    if (!visits_ && std::exchange(lock_.in_call_, false)) lock_.call_over_.notify_all();
  }
  const uint64_t now = EngineLock::pending(lock_.engine_.operations.pending(), lock_.asleep_);
  const uint64_t before = lock_.pending_.load(std::memory_order_relaxed);
  if (now != before) lock_.pending_.store(now, std::memory_order_release);
  leave();
  if (now <= before) return;
  if (EngineLock::operations_in(before) == 0) {
    ActiveEngines::process().add(&lock_);
    if (lock_.threaded_) lock_.work_.notify_one();
  }
  lock_.call_sleepers();
}

void Hold::leave() {
  if (mutex_) {
    mutex_.unlock();
    return;
  }
  Breakdown& breakdown = lock_.engine_.breakdown;
  lock_.inside_.store(false, std::memory_order_release);
  std::atomic_signal_fence(std::memory_order_seq_cst);
  if (breakdown.pending()) {
    const std::lock_guard mutex(lock_.mutex_);
    breakdown.carry_out();
  }
}

// A mutex is not fair, and the progress thread comes back within nanoseconds: it would take the mutex again before a
// waiting thread has woken up. So it steps aside while one waits.
std::unique_lock<std::mutex> EngineLock::lock_for(bool visit) {
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    wanted_.fetch_add(1, std::memory_order_relaxed);
    for (uint32_t polls = 0; polls < engine_.waiter.policy().spins && !lock.try_lock(); ++polls) relax();
    if (!lock) lock.lock();
    wanted_.fetch_sub(1, std::memory_order_relaxed);
  }
  if (!visit) call_over_.wait(lock, [this] { return !in_call_; });
  return lock;
}

// Nothing throws between the count and the end of the opening.
EngineLock::Opening::Opening(EngineLock& lock, bool armed) noexcept
    : lock_(lock), hold_(std::exchange(lock.holder_, nullptr)) {
  if (!hold_) return;
  if (!armed) lock_.keep_watched();
  lock_.in_call_ |= !hold_->visits_;
  // Operations that this thread has begun are published at the hold's end, where they may be left to others.
  const uint64_t operations =
      std::min(operations_in(lock_.pending_.load(std::memory_order_relaxed)), lock_.engine_.operations.pending());
  lock_.pending_.store(pending(operations, ++lock_.asleep_), std::memory_order_release);
  hold_->mutex_.unlock();
}

EngineLock::Opening::~Opening() {
  if (hold_) {
    hold_->mutex_ = lock_.lock_for(true);
    --lock_.asleep_;
    lock_.holder_ = hold_;
  }
  lock_.engine_.base.fabric.disarm();
}

void EngineLock::give_way() {
  if (!holder_ || !wanted_.load(std::memory_order_relaxed)) return;
  const Opening open(*this);
  while (wanted_.load(std::memory_order_relaxed)) sched_yield();
}

// ---- Other threads -----------------------------------------------------------------------------------------

bool EngineLock::try_progress() noexcept {
  const auto wanted = [this] {
    return pending_.load(std::memory_order_acquire) != 0 || quiescing_.load(std::memory_order_acquire);
  };
  Breakdown& breakdown = engine_.breakdown;
  if (!wanted()) return false;
  std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return true;
  if (!wanted()) return false;
  if (quiescing_.load(std::memory_order_relaxed)) {  // what this rank has sent may still be on its way out
    breakdown.set_visited(true);
    engine_.progress_ports(Ports::all);
    breakdown.set_visited(false);
    return true;
  }
  const Hold hold(*this, true, std::move(lock));
  if (breakdown.pending()) return true;
  breakdown.set_visited(true);
  try {
    engine_.progress();
    engine_.look(false);
  } catch (...) {  // out of memory: its own thread comes to it again
  }
  breakdown.set_visited(false);
  if (breakdown.pending() && !threaded_ && !failure_thread_.joinable()) {
    try {
      failure_thread_ = std::thread([this] { carry_out_unless_inside(); });
    } catch (const std::exception&) {  // no thread can be started: left to its own
    }
  }
  return engine_.operations.pending() != 0;
}

bool EngineLock::carry_out_unless_inside() {
  process_barrier();
  const std::unique_lock lock = lock_for(true);
  if (ending_) return false;
  if (inside_.load(std::memory_order_acquire)) return true;
  engine_.base.fabric.disarm();
  engine_.breakdown.carry_out();
  if (is_watched()) ActiveEngines::process().wake(*this);
  return true;
}

void EngineLock::close() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
  ActiveEngines::process().remove(this);
  if (failure_thread_.joinable()) failure_thread_.join();
  const std::lock_guard lock(mutex_);
  ending_ = true;
  inside_.store(true, std::memory_order_relaxed);
  engine_.base.fabric.disarm();
}

void EngineLock::set_quiescing(bool begins) {
  if (begins) {
    quiescing_.store(true, std::memory_order_release);
    ActiveEngines::process().add(this);
  } else {
    ActiveEngines::process().remove(this);
    quiescing_.store(false, std::memory_order_release);
  }
}

// ---- The progress thread -----------------------------------------------------------------------------------

void EngineLock::begin_thread() {
  thread_ = std::thread([this] { run_thread(); });
  threaded_ = true;
  attended_.fetch_add(1);
}

void EngineLock::run_thread() {
  Breakdown& breakdown = engine_.breakdown;
  Streams* const streams = engine_.streams.get();
  uint32_t idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    while (wanted_.load(std::memory_order_relaxed)) sched_yield();
    bool busy = false, replays = false;
    {
      const Hold hold(*this, true, std::unique_lock(mutex_));
      busy = engine_.operations.pending() != 0;
      // Broken: a replay that runs, or is launched yet, completes. The communicator reports the error.
      replays = !busy && breakdown.begun() && streams && streams->release_replays();
      try {
        if (busy && engine_.progress()) idle = 0;
        if (!busy || idle % Waiter::polls_per_look == 0) engine_.look_around(false);
      } catch (const std::exception& problem) {  // no caller would catch it
        breakdown.fail(problem);
      }
    }
    ++idle;
    if (!busy && !replays)
      idle = await_work() ? 0 : idle;
    else
      engine_.waiter.rest(idle);
  }
}

// Waits for a while until an operation is pending or the thread has to end: true when something is pending.
bool EngineLock::await_work() {
  std::unique_lock lock(mutex_);
  const auto busy = [this] { return engine_.operations.pending() != 0; };
  work_.wait_for(lock, std::chrono::milliseconds(20), [&] { return busy() || stop_.load(std::memory_order_relaxed); });
  return busy();
}

// ---- Waits and sleep ---------------------------------------------------------------------------------------

bool EngineLock::progress() { return engine_.progress(); }
void EngineLock::look_around() {
  engine_.look_around();
  Idle::run();
  give_way();
}
bool EngineLock::is_over() const { return engine_.breakdown.begun(); }

Fabric::Armed EngineLock::arm(std::pmr::vector<pollfd>* descriptors) {
  // Nothing rings when a stream comes to where it needs this thread, or a plugin's own operation ends.
  if ((engine_.streams && engine_.streams->pending()) || !engine_.base.natives.empty()) return Fabric::Armed::never;
  return engine_.base.fabric.arm(descriptors);
}

void EngineLock::arm_for(EngineSleep& sleep) {
  const Fabric::Armed armed = arm(&sleep.descriptors());
  if (armed == Fabric::Armed::yes) return;
  if (armed == Fabric::Armed::busy) sleep.cancel();
  if (armed == Fabric::Armed::never) sleep.shorten();
  if (is_watched()) ActiveEngines::process().wake(*this);
}

// Before the lock is released: wakes the threads that sleep for the engine if something has moved; else arms it for
// them.
void EngineLock::keep_watched() {
  const bool stirred = std::exchange(stirred_, false);
  if (is_watched() && (stirred || arm(nullptr) != Fabric::Armed::yes)) ActiveEngines::process().wake(*this);
}

void EngineLock::join(EngineSleep& sleep) noexcept try {
  const auto alone = [this] { return pending_.load(std::memory_order_acquire) && !attended_.load(); };
  if (!alone()) return;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return sleep.shorten();  // a thread is inside, and may leave it to us
  if (!alone() || quiescing_.load(std::memory_order_relaxed) || engine_.breakdown.pending()) return;
  sleep.watch(*this);
  sleep.watch(engine_.base.control());
  arm_for(sleep);
} catch (const std::bad_alloc&) {
  sleep.shorten();
}

void EngineLock::sleep(uint64_t most_ns) {
  // The look around before may have brought what is waited for, here or by a thread that sleeps.
  if (std::exchange(stirred_, false) || engine_.breakdown.begun()) {
    if (is_watched()) ActiveEngines::process().wake(*this);
    return;
  }
  std::optional<Opening> open;  // ends last: the thread that has the mutex may wait until nobody sleeps for an engine
  EngineSleep sleep;
  sleep.watch(engine_.base.control());
  if (holder_) sleep.watch(*this);
  arm_for(sleep);
  ActiveEngines::process().join_others(this, sleep);
  open.emplace(*this, true);
  sleep.pass(Idle::limit(most_ns));
}

}  // namespace tutti::core
