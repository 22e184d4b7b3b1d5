// SPDX-License-Identifier: Apache-2.0
//
// How operations end badly: deadlines, lost peers, aborts; and that all pending ones then end alike.
#include <fmt/format.h>
#include <sched.h>
#include <tutti/registry.h>

#include <array>
#include <cstring>

#include "engine/communicator_hold.hpp"
#include "engine/host.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t drain_limit_ns = 5'000'000'000;

}  // namespace

tutti_status Communicator::async_error() const {
  const tutti_status status = broken_status_.load(std::memory_order_acquire);
  if (status < 0 || !bootstrap_->control().failed()) return status;
  const auto cause = bootstrap_->control().first_cause();
  return cause ? cause->status : status;
}

void Communicator::check_deadlines(uint64_t now) {
  bool any_moved = false;
  const auto overdue = [&](tutti_request& request, bool moved) {
    if (request.last_progress_ns == 0 || moved) {
      request.last_progress_ns = now;
      any_moved = true;
    }
    return now - request.last_progress_ns > request.timeout_ns;
  };
  const auto late = [&](tutti_request& request) {
    const bool running = request.state == tutti_request::State::running;
    // What waits behind others has no deadline of its own until its turn comes: they have theirs.
    const bool first = &request == &direct_ ? in_order_.empty() : in_order_.front() == &request;
    Execution& execution = windows_[request.sequence % windows_.size()].execution;
    if (!overdue(request, running ? execution.take_progress() : !first)) return false;
    record_waits(now, false);
    break_down_late(request.timeout_ns, request.sequence);
    return true;
  };
  if (!direct_.complete.load(std::memory_order_relaxed) && late(direct_)) return;
  for (tutti_request* request : in_order_)
    if (late(*request)) return;
  record_waits(now, any_moved);
  if (streams_ && streams_->overdue(now)) return break_down_late(streams_->timeout_ns(), streams_->sequence());
  if (const Transfer* transfer = point_to_point_.overdue(now)) break_down_late(transfer->timeout_ns, std::nullopt);
}

// The dead are known by now, and who is alive answers a roll call even when it is busy outside Tutti.
void Communicator::break_down_late(uint64_t timeout_ns, std::optional<uint64_t> sequence) {
  constexpr std::chrono::seconds patience(1);
  const std::string waited =
      fmt::format("no progress for {:.1f} s (TUTTI_TIMEOUT)", static_cast<double>(timeout_ns) * 1e-9);
  ControlPlane& control = bootstrap_->control();
  const auto states = control.roll_call(patience);
  for (uint32_t r = 0; r < nranks_; ++r) {
    if (states[r] || control.is_gone(r)) continue;
    const std::string who = control.who(r);
    return break_down(TUTTI_TIMEOUT, r,
                      fmt::format("does not answer{}: it is stopped or its host is overloaded; {} on rank {}",
                                  who.empty() ? "" : ": " + who, waited, rank_));
  }
  Stall stall;
  if (sequence) {
    std::vector<std::optional<CallReport>> reports;
    for (const auto& state : states) reports.push_back(state ? CallReport::decode(*state) : std::nullopt);
    stall = explain_stall(rank_, *sequence, reports);
  }
  if (stall.culprit)
    return break_down(stall.mismatch ? TUTTI_MISMATCH : TUTTI_TIMEOUT, *stall.culprit,
                      fmt::format("{}; {} on rank {}", stall.text, waited, rank_));
  break_down(TUTTI_TIMEOUT, rank_,
             fmt::format("has waited in vain: {}{}{}", waited, stall.text.empty() ? "" : "; ", stall.text));
}

// Where the oldest collective under way stands, for whoever looks from outside.
void Communicator::record_waits(uint64_t now, bool moved) {
  recorder_->look(now, ticks(), moved);
  const bool direct = in_order_.empty() && !direct_.complete.load(std::memory_order_relaxed);
  const tutti_request* oldest = direct ? &direct_ : in_order_.empty() ? nullptr : in_order_.front();
  const bool running = oldest && oldest->state == tutti_request::State::running;
  std::array<tutti_flight_wait, TUTTI_FLIGHT_WAITS> waits;
  const size_t n = running ? windows_[oldest->sequence % windows_.size()].execution.waits(oldest->sequence, waits) : 0;
  recorder_->waits({waits.data(), n});
}

std::string Communicator::flight_record_text() const {
  return recorder_->path().empty()
             ? ""
             : fmt::format(" [flight record: {}; read all ranks' with tutti-info --hang]", recorder_->path());
}

std::string Communicator::describe(const tutti_request& request) const {
  const bool running = request.state == tutti_request::State::running;
  return fmt::format("{} #{} ({}{}), at {}", collective_name(request.plan->shape.collective), request.sequence,
                     request.plan->algorithm->name,
                     request.plan->transports.empty() ? "" : " over " + request.plan->transports,
                     running                   ? windows_[request.sequence % windows_.size()].execution.where()
                     : call_check_.under_way() ? call_check_.where()
                                               : "its start: links are being connected, or earlier operations go on");
}

std::string Communicator::standpoint() const {
  std::string where;
  if (!direct_.complete.load(std::memory_order_relaxed))
    where = describe(direct_);
  else if (!in_order_.empty())
    where = describe(*in_order_.front());
  else if (const Transfer* transfer = point_to_point_.oldest(); transfer && transfer->on_stream)
    where = fmt::format("{} on device memory, which waits for the other side's {}", text_of(*transfer),
                        transfer->sending ? "receive" : "send");
  else if (streams_ && streams_->pending())
    where = streams_->standpoint();
  else if (transfer)
    where = fmt::format("{} rank {} with tag {}, which waits for the other side's {}",
                        transfer->sending ? "send to" : "receive from", transfer->peer, transfer->tag,
                        transfer->sending ? "receive" : "send");
  return fmt::format("seen by rank {} in {}{}{}", rank_, name_, where.empty() ? "" : ": ", where);
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

void Communicator::break_down(tutti_status status, uint32_t culprit, const std::string& reason) {
  if (breaking_) return;
  ControlPlane& control = bootstrap_->control();
  // A transport often notices a death before the control plane has named the dead, and the cause: worth a short wait.
  constexpr std::chrono::milliseconds patience(300);
  const auto cause = status == TUTTI_PEER_FAILED ? control.await_cause(patience) : control.first_cause();
  if (cause) return break_down(*cause);
  control.announce(culprit, status, fmt::format("{}; {}", reason, standpoint()));
  break_down({0, culprit, status, false, reason});
}

void Communicator::break_down(const std::exception& problem) {
  if (const auto* difference = dynamic_cast<const CallsDiffer*>(&problem))
    return break_down(TUTTI_MISMATCH, difference->culprit, difference->text);
  const Failure failure = failure_of(problem);
  // A message of another size has come: by now its sender has told which call it belongs to.
  if (failure.status == TUTTI_MISMATCH && !breaking_) {
    for (Port& port : ports_) progress_port(port, *this);
    if (lost_status_ == TUTTI_MISMATCH) return break_down(lost_status_, lost_peer_, lost_reason_);
  }
  break_down(failure.status, rank_, fmt::format("failed: {}", failure.text));
}

void Communicator::break_down(const Loss& cause) {
  if (breaking_) return;
  breaking_ = true;
  const tutti_status status = cause.status;
  broken_text_ = fmt::format("{}; {}", cause.text(), standpoint());
  log(TUTTI_LOG_INFO, name_, broken_text_);
  recorder_->failed(broken_text_);
  if (status != TUTTI_ABORTED) broken_text_ += flight_record_text();
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
  if (streams_) end_streams(status);
}

void Communicator::on_control(Port& port, uint32_t peer, const std::byte* data, uint64_t bytes) {
  std::string error;
  if (peer >= nranks_ || peer == rank_ || breaking_) return;
  uint32_t type = 0;
  if (bytes >= sizeof type) std::memcpy(&type, data, sizeof type);
  if (type == type_call_check || type == type_call_news) {
    const auto own = [this](uint64_t sequence) { return recorder_->call(sequence); };
    std::optional<CallDifference> difference;
    error = call_check_.on_control(peer, data, bytes, next_sequence_, own, &difference);
    if ((error.empty() && !difference) || lost_status_ < 0) return;
    lost_status_ = TUTTI_MISMATCH;
    lost_peer_ = difference ? difference->culprit : peer;
    lost_reason_ = difference ? difference->reason : fmt::format("sent over {} {}", port.api->name, error);
    return;
  }
  if (!point_to_point_.on_control(peer, data, bytes, &error)) {
    lost_status_ = TUTTI_MISMATCH;
    lost_peer_ = peer;
    lost_reason_ = fmt::format("sent over {} {}", port.api->name, error);
  } else if (const auto difference = point_to_point_.take_difference(); difference && lost_status_ == TUTTI_OK) {
    lost_status_ = TUTTI_MISMATCH;
    lost_peer_ = difference->culprit;
    lost_reason_ = difference->reason;
  }
}

void Communicator::on_peer_failed(Port& port, uint32_t peer, const char* reason) {
  if (lost_status_ < 0 || peer >= nranks_) return;
  lost_status_ = TUTTI_PEER_FAILED;
  lost_peer_ = peer;
  // Transports begin with their own name and the peer's.
  std::string why = reason;
  const std::string named = fmt::format("rank {} is lost: ", peer);
  if (const size_t at = why.find(named); at != std::string::npos) why.erase(0, at + named.size());
  lost_reason_ = fmt::format("is out of reach over {}: {}", port.api->name, why);
}

void Communicator::on_port_error(Port& port, tutti_status status, const std::string& reason) {
  if (lost_status_ < 0) return;
  lost_status_ = status;
  lost_peer_ = rank_;
  lost_reason_ = fmt::format("failed: transport {}: {}", port.api->name, reason);
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
  break_down(TUTTI_ABORTED, rank_, reason);
}

}  // namespace tutti::core
