// SPDX-License-Identifier: Apache-2.0
//
// How operations end badly: deadlines, lost peers, aborts; and that all pending ones then end alike.
#include <fmt/format.h>
#include <sched.h>
#include <tutti/registry.h>

#include "engine/communicator_hold.hpp"
#include "engine/host.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t drain_limit_ns = 5'000'000'000;

}  // namespace

// A transport has lost a peer. Often that peer (or what made it end) is about to be named by the control plane, with
// the cause: that is worth a short wait.
void Communicator::give_up_lost_peer() {
  constexpr uint64_t patience_ns = 200'000'000;
  const uint64_t limit = clock_ns() + patience_ns;
  do {
    if (const auto lost = bootstrap_->poll_failure()) {
      break_down(TUTTI_PEER_FAILED,
                 fmt::format("{}: rank {} is lost: {} [{}]", under_way(), lost->first, lost->second, lost_text_),
                 false);
      return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  } while (clock_ns() < limit);
  break_down(lost_status_, lost_text_, true);
}

void Communicator::check_deadlines(uint64_t now) {
  const auto overdue = [&](tutti_request& request, bool moved) {
    if (request.last_progress_ns == 0 || moved) request.last_progress_ns = now;
    return now - request.last_progress_ns > request.timeout_ns;
  };
  const auto late = [&](tutti_request& request) {
    const bool running = request.state == tutti_request::State::running;
    // What waits behind others has no deadline of its own until its turn comes: they have theirs.
    const bool first = &request == &direct_ ? in_order_.empty() : in_order_.front() == &request;
    Execution& execution = windows_[request.sequence % windows_.size()].execution;
    if (!overdue(request, running ? execution.take_progress() : !first)) return false;
    break_down(TUTTI_TIMEOUT,
               fmt::format("{}: no progress for {:.1f} s (TUTTI_TIMEOUT); it stands at {}", describe(request),
                           static_cast<double>(request.timeout_ns) * 1e-9,
                           running ? execution.where()
                                   : std::string("its start: links are being connected, or earlier operations go on")),
               true);
    return true;
  };
  if (!direct_.complete.load(std::memory_order_relaxed) && late(direct_)) return;
  for (tutti_request* request : in_order_)
    if (late(*request)) return;
  if (const Transfer* transfer = point_to_point_.overdue(now))
    break_down(
        TUTTI_TIMEOUT,
        fmt::format("rank {}: {}: {} rank {} with tag {} made no progress for {:.1f} s (TUTTI_TIMEOUT); it waits for "
                    "the other side's {}",
                    rank_, name_, transfer->sending ? "send to" : "receive from", transfer->peer, transfer->tag,
                    static_cast<double>(transfer->timeout_ns) * 1e-9, transfer->sending ? "receive" : "send"),
        true);
}

std::string Communicator::describe(const tutti_request& request) const {
  return fmt::format("rank {}: {}: {} #{} ({}{})", rank_, name_, collective_name(request.plan->shape.collective),
                     request.sequence, request.plan->algorithm->name,
                     request.plan->transports.empty() ? "" : " over " + request.plan->transports);
}

// The oldest collective that is not complete, for messages.
std::string Communicator::under_way() const {
  if (!direct_.complete.load(std::memory_order_relaxed)) return describe(direct_);
  return in_order_.empty() ? fmt::format("rank {}: {}", rank_, name_) : describe(*in_order_.front());
}

void Communicator::drain() {
  const uint64_t limit = clock_ns() + drain_limit_ns;
  for (Port& port : ports_)
    while (port.outstanding && clock_ns() < limit) {
      const uint64_t before = port.outstanding;
      progress_port(port, *this);
      if (port.outstanding == before) sched_yield();
    }
  for (const Port& port : ports_)
    if (port.outstanding)
      broken_text_ +=
          fmt::format("; {} has not given back {} buffers: keep them untouched until the communicator is destroyed",
                      port.api->name, port.outstanding);
}

void Communicator::break_down(tutti_status status, const std::string& text, bool tell_others) {
  if (breaking_) return;
  breaking_ = true;
  broken_text_ = text;
  log(TUTTI_LOG_INFO, name_, text);
  if (tell_others) bootstrap_->announce_failure(text);
  bool lent = false;
  for (Window& window : windows_) lent |= window.running && window.execution.lent();
  for (Port& port : ports_) port.api->abort(port.endpoint);
  drain();
  if (lent)
    broken_text_ +=
        "; peers may still be reading what was sent by reference: keep memory from tutti_mem_alloc untouched until the "
        "communicator is destroyed";
  broken_status_.store(status, std::memory_order_release);
  if (!direct_.complete.load(std::memory_order_relaxed)) complete(direct_, status);
  while (!in_order_.empty()) {
    tutti_request* request = in_order_.front();
    in_order_.pop_front();
    complete(*request, status);
  }
  point_to_point_.fail_all(status, broken_text_);
}

void Communicator::on_control(Port& port, uint32_t peer, const std::byte* data, uint64_t bytes) {
  std::string error;
  if (peer >= nranks_ || peer == rank_ || breaking_) return;
  if (!point_to_point_.on_control(peer, data, bytes, &error)) {
    lost_status_ = TUTTI_MISMATCH;
    lost_text_ = fmt::format("rank {}: {}: rank {} sent over {} {}", rank_, name_, peer, port.api->name, error);
  }
}

void Communicator::on_peer_failed(Port& port, uint32_t peer, const char* reason) {
  if (lost_status_ < 0) return;
  lost_status_ = TUTTI_PEER_FAILED;
  lost_text_ = fmt::format("{}: {} lost rank {}: {}", under_way(), port.api->name, peer, reason);
}

void Communicator::on_port_error(Port& port, tutti_status status, const std::string& reason) {
  if (lost_status_ < 0) return;
  lost_status_ = status;
  lost_text_ = fmt::format("rank {}: {}: transport {} failed: {}", rank_, name_, port.api->name, reason);
}

void Communicator::abort(const std::string& reason) {
  {
    const std::lock_guard lock(abort_mutex_);
    if (!abort_asked_.load(std::memory_order_relaxed)) abort_reason_ = reason;
    abort_asked_.store(true, std::memory_order_release);
  }
  // The owner notices if it is inside (communicator_hold.hpp); else it is done here, before anybody comes in.
  process_barrier();
  const std::lock_guard lock(mutex_);
  if (!inside_.load(std::memory_order_acquire)) notice_abort();
}

// Carries out an abort that was asked for. The engine is held.
void Communicator::notice_abort() {
  if (!abort_asked_.load(std::memory_order_acquire) || breaking_) return;
  std::string reason;
  {
    const std::lock_guard lock(abort_mutex_);
    reason = abort_reason_;
  }
  break_down(TUTTI_ABORTED, fmt::format("rank {}: {}: aborted: {}", rank_, name_, reason), true);
}

}  // namespace tutti::core
