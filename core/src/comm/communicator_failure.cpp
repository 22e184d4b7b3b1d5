// SPDX-License-Identifier: Apache-2.0
//
// How operations end badly: deadlines, lost peers, aborts; and that all pending ones then end alike.
#include <fmt/format.h>
#include <tutti/registry.h>

#include <cstring>

#include "comm/communicator_hold.hpp"
#include "plugins/host.hpp"

namespace tutti::core {
namespace {

constexpr std::chrono::seconds drain_limit(5);

}  // namespace

void Communicator::check_deadlines(uint64_t now) {
  if (const tutti_request* late = operations_.overdue(now))
    breakdown_.fail(breakdown_.late(late->timeout_ns, late->sequence));
  else if (streams_ && streams_->overdue(now))
    breakdown_.fail(breakdown_.late(streams_->timeout_ns(), streams_->sequence()));
  else if (const Transfer* transfer = point_to_point_.overdue(now))
    breakdown_.fail(breakdown_.late(transfer->timeout_ns, std::nullopt));
}

std::string Communicator::standpoint() const {
  std::string where = operations_.standpoint();
  const Transfer* transfer = point_to_point_.oldest();
  const tutti_request* on_device = streams_ ? streams_->oldest() : nullptr;
  const Transfer* unmatched = on_device ? Operations::unmatched(*on_device) : nullptr;
  if (unmatched) transfer = unmatched;
  const bool waits_to_match = unmatched || (transfer && transfer->on_stream && transfer->timeout_ns != no_timeout);
  if (where.empty() && !waits_to_match && streams_ && streams_->pending()) where = streams_->standpoint();
  if (where.empty() && transfer) where = PointToPoint::standpoint(*transfer) + point_to_point_.hint(*transfer);
  return fmt::format("seen by rank {} in {}{}{}", rank_, name(), where.empty() ? "" : ": ", where);
}

Cause Communicator::cause_of(const std::exception& problem) noexcept try {
  if (const auto* difference = dynamic_cast<const CallsDiffer*>(&problem))
    return {TUTTI_MISMATCH, difference->culprit, difference->text};
  const Failure failure = failure_of(problem);
  // A message of another size has come: by now its sender has told which call it belongs to. Or a link fails: its
  // transport has recorded which peer is out of reach.
  if ((failure.status == TUTTI_MISMATCH || failure.status == TUTTI_PEER_FAILED) && !breakdown_.begun()) {
    fabric_.progress(true, *this);
    if (auto told = breakdown_.reported(); told && told->status == failure.status) return *told;
  }
  return {failure.status, rank_, fmt::format("failed: {}", failure.text)};
} catch (const std::bad_alloc&) {
  return {TUTTI_NO_RESOURCES, rank_, "out of memory"};
}

void Communicator::out_of_memory() {
  const Hold hold(*this);
  breakdown_.fail(cause_of(std::bad_alloc()));
}

void Communicator::stop(Breakdown::Text& text) {
  const bool lent = operations_.lent();
  for (const auto& group : natives_) group->abort();
  operations_.abandon();
  fabric_.abort(drain_limit, *this);
  text.add([this] { return fabric_.not_given_back(); });
  if (lent)
    text.add([] {
      return "; peers may still be reading what was sent by reference: keep memory from tutti_mem_alloc untouched "
             "until the communicator is destroyed";
    });
  if (streams_) text.add([this] { return let_streams_go(); });
}

void Communicator::end_operations(tutti_status status, const std::string& text) {
  operations_.fail_all(status);
  point_to_point_.fail_all(status, text);
  if (streams_) fail_streams(status);
}

void Communicator::on_control(Port& port, uint32_t peer, const std::byte* data, uint64_t bytes) {
  if (peer >= nranks_ || peer == rank_ || breakdown_.begun()) return;
  std::string error;
  std::optional<CallDifference> difference;
  uint32_t type = 0;
  if (bytes >= sizeof type) std::memcpy(&type, data, sizeof type);
  if (type == type_call_check || type == type_call_news) {
    const auto own = [this](uint64_t sequence) { return reports_->recorder().call(sequence); };
    error = call_check_.on_control(peer, data, bytes, operations_.next_sequence(), own, &difference);
  } else if (point_to_point_.on_control(peer, data, bytes, &error)) {
    difference = point_to_point_.take_difference();
  }
  if (difference)
    breakdown_.report({TUTTI_MISMATCH, difference->culprit, difference->reason});
  else if (!error.empty())
    breakdown_.report({TUTTI_MISMATCH, peer, fmt::format("sent over {} {}", port.api->name, error)});
}

void Communicator::on_peer_failed(Port& port, uint32_t peer, const char* reason) {
  if (peer >= nranks_) return;
  // Transports begin with their own name and the peer's.
  std::string why = reason;
  const std::string named = fmt::format("rank {} is lost: ", peer);
  if (const size_t at = why.find(named); at != std::string::npos) why.erase(0, at + named.size());
  breakdown_.report({TUTTI_PEER_FAILED, peer, fmt::format("is out of reach over {}: {}", port.api->name, why)});
}

void Communicator::on_port_error(Port& port, tutti_status status, const std::string& reason) {
  breakdown_.report({status, rank_, fmt::format("failed: transport {}: {}", port.api->name, reason)});
}

void Communicator::abort(const std::string& reason) {
  breakdown_.report({TUTTI_ABORTED, rank_, reason});
  // A rank that is ending the communicator waits for other ranks, which hear of it together with this one.
  if (!carry_out_unless_inside()) bootstrap_->control().announce(rank_, TUTTI_ABORTED, reason);
}

// For threads without the engine. The owner notices what was reported if it is inside (communicator_hold.hpp); else it
// is carried out here, before anybody comes in. False: the communicator is being ended, which is left to its owner.
bool Communicator::carry_out_unless_inside() {
  process_barrier();
  const std::lock_guard lock(mutex_);
  if (ending_) return false;
  if (!inside_.load(std::memory_order_acquire)) breakdown_.carry_out();
  return true;
}

}  // namespace tutti::core
