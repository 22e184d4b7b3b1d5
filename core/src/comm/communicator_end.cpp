// SPDX-License-Identifier: Apache-2.0
//
// Ending a communicator: all ranks meet once more, and only then let go of what others use.
#include <fmt/format.h>

#include "bootstrap/bootstrap.hpp"
#include "bootstrap/failure.hpp"
#include "comm/communicator.hpp"
#include "plugins/host.hpp"

namespace tutti::core {

// In checked mode destroying is a call like others: who still wants a collective is told that others do not.
void Communicator::check_end() {
  Call call;
  call.sequence = operations_.next_sequence();
  const uint64_t limit = clock_ns() + configuration_.connect_timeout_ns;
  try {
    waiter_.until(
        [&] { return call_check_.check(call, [](Link& link) { return connect(link); }) || clock_ns() > limit; });
  } catch (const std::exception& problem) {
    breakdown_.fail(cause_of(problem));
  }
}

// All ranks meet once more, so that no rank closes a connection over which another still waits for bytes.
void Communicator::settle() {
  std::optional<Failure> why;
  settling_.store(true, std::memory_order_release);
  ActiveEngines::process().add(this);
  try {
    const BackgroundProgress meanwhile;
    all_gather("end");
    bootstrap_->leave_together();
  } catch (const std::exception& problem) {
    why = failure_of(problem);
  }
  ActiveEngines::process().remove(this);
  settling_.store(false, std::memory_order_release);
  if (why) {
    const std::string text = fmt::format("{}; seen by rank {} in {}: destroy", why->text, rank_, name());
    log(TUTTI_LOG_WARN, name(), text);
    bootstrap_->announce_failure(TUTTI_ABORTED, "destroyed the communicator without the others: " + why->text);
    breakdown_.end_alone(why->status, text);
    return;
  }
  // Reports that others sent before they came here have arrived. That they leave now is no loss.
  fabric_.progress(true, *this);
  if (const auto told = breakdown_.reported(); told && told->status == TUTTI_MISMATCH) breakdown_.fail(*told);
}

tutti_status Communicator::end() {
  {
    const std::lock_guard lock(mutex_);
    stop_.store(true, std::memory_order_relaxed);
  }
  work_.notify_one();
  if (thread_.joinable()) thread_.join();
  ActiveEngines::process().remove(this);
  if (failure_thread_.joinable()) failure_thread_.join();
  {
    // From here on this thread is alone: an abort leaves everything to it.
    const std::lock_guard lock(mutex_);
    ending_ = true;
    inside_.store(true, std::memory_order_relaxed);
  }
  breakdown_.carry_out();
  if (streams_) {
    waiter_.until([this] { return streams_->operations() == 0; });
    streams_->end();  // before the ranks meet: then all have unmapped what belongs to others
  }
  if (async_error() == TUTTI_OK && operations_.pending())
    breakdown_.fail(
        {TUTTI_ABORTED, rank_,
         fmt::format("destroyed the communicator {} with {} operations pending", name(), operations_.pending())});
  reports_->recorder().enter(async_error() == TUTTI_OK ? TUTTI_FLIGHT_ENDING : TUTTI_FLIGHT_FAILED);
  if (async_error() == TUTTI_OK && call_check_.checked()) check_end();
  if (async_error() == TUTTI_OK && nranks_ > 1)
    settle();
  else
    breakdown_.hear_others();  // a loss that no call has met yet
  const bool broken = breakdown_.status() < 0;
  if (!broken) reports_->recorder().ended();
  return broken ? remember(async_error(), breakdown_.text()) : tutti_status{TUTTI_OK};
}

Communicator::~Communicator() {
  bootstrap_->control().answer_roll_calls(nullptr);
  for (const auto& window : memory_windows_) fabric_.deregister_window(*window);
  bool keep_mapped = false;
  if (streams_ && streams_->is_left_behind()) {
    keep_mapped = true;
    keep_streams();
  } else if (streams_) {
    keep_mapped = !streams_->end_for_good();
  }
  natives_.clear();
  fabric_.close(keep_mapped);  // before the operations: what a transport has not given back must still be there
}

}  // namespace tutti::core
