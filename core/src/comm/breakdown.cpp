// SPDX-License-Identifier: Apache-2.0
#include "comm/breakdown.hpp"

#include <fmt/format.h>

#include <chrono>
#include <vector>

#include "comm/foundation.hpp"
#include "engine/check/call_check.hpp"
#include "engine/host/executor.hpp"
#include "record/call_report.hpp"
#include "record/reports.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

// The answers to a roll call.
std::vector<std::optional<CallReport>> reports_of(const std::vector<std::optional<std::string>>& states) {
  std::vector<std::optional<CallReport>> reports;
  for (const auto& state : states) reports.push_back(state ? CallReport::read(*state) : std::nullopt);
  return reports;
}

}  // namespace

tutti_status Breakdown::error() const {
  const tutti_status own = status();
  if (own < 0 || !base_.control().failed()) return own;
  const auto cause = base_.control().first_cause();
  return cause ? cause->status : own;
}

void Breakdown::report(Cause cause) {
  if (state_.load(std::memory_order_acquire) != TUTTI_OK) return;
  const std::lock_guard lock(mutex_);
  if (!reported_) reported_ = std::move(cause);
  pending_.store(true, std::memory_order_release);
}

std::optional<Cause> Breakdown::reported() const {
  const std::lock_guard lock(mutex_);
  return reported_;
}

void Breakdown::carry_out() {
  if (!pending() || visited_ || begun()) return;
  // It stays pending: an owner that comes in while another thread carries it out must wait for the text.
  if (const auto cause = reported()) fail(*cause);
}

void Breakdown::poll_others() {
  if (!begun() && base_.control().failed()) fail({TUTTI_PEER_FAILED, base_.rank(), "knows of a loss"});
}

void Breakdown::require_none() {
  carry_out();
  poll_others();
  if (begun()) throw failure();
}

Cause Breakdown::late(uint64_t timeout_ns, std::optional<uint64_t> sequence, std::optional<uint32_t> peer) const {
  return {TUTTI_TIMEOUT, base_.rank(), {}, timeout_ns, sequence, peer};
}

void Breakdown::fail(const Cause& cause) {
  if (begun()) return;
  if (visited_) return report(cause);
  try {
    end(loss_of(cause));
  } catch (const std::bad_alloc&) {
    const Loss loss{0, cause.culprit, cause.status, false, "out of memory"};
    base_.control().announce(cause.culprit, cause.status, loss.reason, cause.innocent);
    end(loss);
  }
}

Cause Breakdown::cause_of(const std::exception& problem) noexcept try {
  if (const auto* difference = dynamic_cast<const CallsDiffer*>(&problem))
    return {TUTTI_MISMATCH, difference->culprit, difference->text};
  const Failure failure = failure_of(problem);
  if ((failure.status == TUTTI_MISMATCH || failure.status == TUTTI_PEER_FAILED) && !begun()) {
    parts_.poll();
    if (auto told = reported(); told && told->status == failure.status) return *told;
  }
  if (const auto* message = dynamic_cast<const MessageDiffers*>(&problem); message && !message->same_call)
    return {.status = failure.status,
            .culprit = base_.rank(),
            .reason = fmt::format("failed: {}", failure.text),
            .differs_from = message->peer};
  return {failure.status, base_.rank(), fmt::format("failed: {}", failure.text)};
} catch (const std::bad_alloc&) {
  return {TUTTI_NO_RESOURCES, base_.rank(), "out of memory"};
}

// The first cause that the control plane knows; else this one, which all ranks are told.
Loss Breakdown::loss_of(const Cause& given) {
  if (given.differs_from)
    if (const auto told = base_.control().first_cause()) return *told;  // another rank has found it
  const Cause cause = given.stood_still_ns ? blame(given) : given.differs_from ? find_difference(given) : given;
  // A transport often notices a death before the control plane has named the dead, and the cause: worth a short wait.
  constexpr std::chrono::milliseconds patience(300);
  const auto known =
      cause.status == TUTTI_PEER_FAILED ? base_.control().await_cause(patience) : base_.control().first_cause();
  if (known) return *known;
  base_.control().announce(cause.culprit, cause.status, fmt::format("{}; {}", cause.reason, parts_.standpoint()),
                           cause.innocent);
  return {0, cause.culprit, cause.status, false, cause.reason};
}

// The rank that keeps a late operation waiting. The dead are known by now, and a living rank answers a roll call even
// when it is busy outside Tutti.
Cause Breakdown::blame(const Cause& late) const {
  constexpr std::chrono::seconds patience(1);
  const std::string waited = "no progress for " + base_.configuration.timeout.text(late.stood_still_ns);
  const auto states = base_.control().roll_call(patience);
  for (uint32_t r = 0; r < states.size(); ++r) {
    if (states[r] || base_.control().is_gone(r)) continue;
    const std::string who = base_.control().who(r);
    return {TUTTI_TIMEOUT, r,
            fmt::format("does not answer{}: it is stopped or its host is overloaded; {} on rank {}",
                        who.empty() ? "" : ": " + who, waited, base_.rank())};
  }
  const auto reports = reports_of(states);
  const auto waits_for_me = [&](const WaitElsewhere& wait) { return base_.reports.recorder().awaits_this_rank(wait); };
  Stall stall;
  if (late.sequence) stall = explain_stall(base_.rank(), *late.sequence, late.stood_still_ns, reports, waits_for_me);
  if (late.peer) stall = explain_transfer(base_.rank(), *late.peer, reports, waits_for_me);
  if (stall.culprit)
    return {stall.mismatch ? TUTTI_MISMATCH : TUTTI_TIMEOUT, *stall.culprit,
            fmt::format("{}; {} on rank {}", stall.text, waited, base_.rank())};
  Cause unknown{TUTTI_TIMEOUT, base_.rank(),
                fmt::format("timed out: {}{}{}", waited, stall.text.empty() ? "" : "; ", stall.text)};
  unknown.innocent = true;
  return unknown;
}

// The calls that differ, by a roll call.
Cause Breakdown::find_difference(const Cause& given) const {
  constexpr std::chrono::seconds patience(1);
  if (const auto difference = first_difference(base_.rank(), reports_of(base_.control().roll_call(patience))))
    return {TUTTI_MISMATCH, difference->culprit, difference->reason};
  Cause unknown = given;
  unknown.reason += fmt::format(
      "; no difference is among the last {} calls of the ranks: rank {} made other calls before "
      "(TUTTI_CHECK=1 names the first one), or a message was lost on the way (TUTTI_CHECKSUM=1)",
      most_calls_reported, *given.differs_from);
  return unknown;
}

// Even without memory every operation ends: only the text is then shorter.
void Breakdown::end(const Loss& loss) {
  if (begun()) return;
  state_.store(under_way, std::memory_order_relaxed);
  ErrorText text;
  text.add([&] { return fmt::format("{}; {}", loss.text(), parts_.standpoint()); });
  if (text.text().empty()) text.add([] { return "out of memory"; });
  try {
    log(TUTTI_LOG_INFO, base_.configuration.name, text.text());
    base_.reports.recorder().failed(text.text());
  } catch (const std::bad_alloc&) {
  }
  if (loss.status != TUTTI_ABORTED) text.add([this] { return base_.reports.recorder_hint(); });
  parts_.stop(text);
  text_ = text.take();
  state_.store(loss.status, std::memory_order_release);
  parts_.end_operations(loss.status, text_);
}

void Breakdown::end_alone(tutti_status status, const std::string& text) {
  text_ = text;
  base_.reports.recorder().failed(text);
  state_.store(status, std::memory_order_release);
}

tutti_status Breakdown::remember(tutti_status given, std::string said) noexcept {
  if (status() < 0 && !said.starts_with(text_)) try {
      said += fmt::format(" (the communicator was broken before: {})", text_);
    } catch (const std::bad_alloc&) {  // it stays as it is
    }
  last_error_ = std::move(said);
  return given;
}

}  // namespace tutti::core
