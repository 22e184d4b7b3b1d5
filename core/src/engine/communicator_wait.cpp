// SPDX-License-Identifier: Apache-2.0
//
// How a rank passes the time until its operations are complete: polling, yielding, sleeping; or a thread that does it.
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include "bootstrap/failure.hpp"
#include "engine/communicator_hold.hpp"

namespace tutti::core {
namespace {

constexpr uint32_t polls_per_look = 64;

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

}  // namespace

void Communicator::progress_thread() {
  uint32_t idle = 0;
  while (!stop_.load(std::memory_order_relaxed)) {
    bool busy = false, replays = false;
    {
      const Hold hold(*this, std::unique_lock(mutex_));
      busy = unfinished_ != 0;
      if (streams_) streams_->heed();
      // Broken: a replay that runs, or is launched yet, comes to its end. The error is told by the communicator.
      replays = !busy && breaking_ && streams_ && streams_->recorded();
      if (replays) streams_->let_replays_go();
      if (busy && progress()) idle = 0;
      if (!busy || idle % polls_per_look == 0) look_around();
    }
    ++idle;
    if (replays)
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    else if (!busy)
      idle = await_work() ? 0 : idle;
    else if (idle < policy_.spins)
      relax();
    else if (idle < policy_.spins + policy_.yields)
      sched_yield();
    else
      std::this_thread::sleep_for(std::chrono::microseconds(50));
  }
}

// Until an operation is pending or the thread has to end, for a while: true when something is pending.
bool Communicator::await_work() {
  std::unique_lock lock(mutex_);
  work_.wait_for(lock, std::chrono::milliseconds(20),
                 [this] { return unfinished_ != 0 || stop_.load(std::memory_order_relaxed); });
  return unfinished_ != 0;
}

void Communicator::pause(uint32_t& fruitless) {
  ++fruitless;
  if (++polls_ % polls_per_look == 0) look_around();
  if (fruitless < policy_.spins) {
    relax();
  } else if (fruitless < policy_.spins + policy_.yields) {
    sched_yield();
  } else {
    look_around();
    if (!ActiveEngines::process().progress_others(this))
      sleep();
    else
      sched_yield();
  }
}

// Until something can be done, at most a few milliseconds: the deadline and other threads' wishes are looked at in
// between.
void Communicator::sleep() {
  constexpr int most_ms = 20;
  constexpr size_t most_ports = 15;
  pollfd fds[most_ports + 1];
  size_t n = 0, armed = 0;
  // Nothing rings when a stream comes to where it needs this thread.
  bool can_sleep = ports_.size() <= most_ports && !(streams_ && streams_->pending()), busy = false;
  for (Port& port : ports_) {
    if (!port.wait_fd || !can_sleep) {
      can_sleep = false;
      break;
    }
    ++armed;
    if (port.wait_fd->arm(port.endpoint) != TUTTI_OK) {
      busy = true;
      break;
    }
    fds[n++] = {port.fd, POLLIN, 0};
  }
  if (!can_sleep)
    std::this_thread::sleep_for(std::chrono::microseconds(20));
  else if (!busy) {
    ControlPlane& control = bootstrap_->control();
    fds[n++] = {control.wait_fd(), POLLIN, 0};
    if (poll(fds, n, most_ms) > 0 && fds[n - 1].revents) control.clear_wait_fd();
  } else {
    sched_yield();
  }
  for (size_t i = 0; i < armed; ++i) ports_[i].wait_fd->disarm(ports_[i].endpoint);
}

// A blocking call. Alone, it runs at once in this thread; behind asynchronous operations it takes its turn.
void Communicator::run_directly(tutti_request& request) {
  uint32_t fruitless = 0;
  Window& window = windows_[request.sequence % windows_.size()];
  try {
    while (!in_order_.empty() || window.running || !try_launch(request)) {
      if (!progress()) {
        progress_ports(true);
        pause(fruitless);
      } else {
        fruitless = 0;
      }
      if (breaking_) break;
    }
    for (fruitless = 0; !breaking_ && !window.execution.advance();) {
      bool moved = window.execution.take_moved();
      const bool others = point_to_point_.active() || (streams_ && streams_->pending());
      moved |= others ? progress() : progress_ports(false);
      if (moved)
        fruitless = 0;
      else
        pause(fruitless);
      if (moved && ++polls_ % polls_per_look == 0) look_around();
    }
  } catch (const std::exception& problem) {
    break_down(problem);
  }
  if (!breaking_ && request.plan->fresh) listen_once(*request.plan);
  if (breaking_) {
    if (!request.complete.load(std::memory_order_relaxed)) complete(request, async_error());
    return;
  }
  request.plan->stores.report(ticks() - request.begin_ticks);
  complete(request, TUTTI_OK);
}

tutti_status Communicator::result_of(tutti_request& request) {
  if (request.status == TUTTI_OK) return TUTTI_OK;
  return remember(request.status, request.error);
}

tutti_status Communicator::test(tutti_request& request) {
  if (!request.complete.load(std::memory_order_acquire)) {
    const Hold hold(*this);
    if (!progress()) look_around();
  }
  return request.complete.load(std::memory_order_acquire) ? result_of(request) : tutti_status{TUTTI_AGAIN};
}

tutti_status Communicator::wait(tutti_request& request, uint64_t timeout_ns) {
  const uint64_t deadline = timeout_ns == UINT64_MAX ? UINT64_MAX : clock_ns() + timeout_ns;
  uint32_t fruitless = 0;
  while (!request.complete.load(std::memory_order_acquire)) {
    const Hold hold(*this);
    if (progress())
      fruitless = 0;
    else if (!request.complete.load(std::memory_order_acquire))
      pause(fruitless);
    if (deadline != UINT64_MAX && clock_ns() >= deadline && !request.complete.load(std::memory_order_acquire))
      return TUTTI_AGAIN;
  }
  return result_of(request);
}

tutti_status Communicator::remember(tutti_status status, std::string text) {
  const tutti_status broken = broken_status_.load(std::memory_order_acquire);
  if (broken < 0 && text != broken_text_)
    text += fmt::format(" (the communicator was broken before: {})", broken_text_);
  error_text_ = std::move(text);
  return status;
}

}  // namespace tutti::core
