// SPDX-License-Identifier: Apache-2.0
//
// How operations end badly: deadlines, lost peers, aborts, and that all pending ones then end alike. How a communicator
// ends well: all ranks meet once more, and only then let go of what others use.
#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/clock.hpp"
#include "base/deadline.hpp"
#include "base/failure.hpp"
#include "bootstrap/bootstrap.hpp"
#include "comm/communicator_hold.hpp"
#include "net/interrupt.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

constexpr std::chrono::seconds drain_limit(5);
// Brought by each rank when all meet for the end: the number of collectives that it has called, and a hash of them.
struct Called {
  uint64_t collectives = 0, hash = 0;

  static void fields(auto& wire, auto& called) { wire(called.collectives, called.hash); }
};
// Nothing: the rank is in another call.
std::optional<Called> called_before_end(std::string_view bytes) try {
  const auto word = decode<JointWord>(bytes, "a rank's word");
  if (word.call != destroy_call) return std::nullopt;
  return decode<Called>(word.bytes, "a rank's word at the end");
} catch (const Failure&) {  // of no call
  return std::nullopt;
}

// The processes that did not come when this thread destroyed a communicator, and until when that counts.
struct Absent {
  std::vector<std::string> processes;
  uint64_t until_ns = 0;
};
thread_local Absent absent;
constexpr std::chrono::seconds short_patience(1);

// A rank's process, and where ranks are threads of this one its number, too.
std::string process_of(const ControlPlane& control, uint32_t rank, uint32_t own_rank) {
  const std::string who = control.who(rank);
  return who == control.who(own_rank) ? fmt::format("{} rank {}", who, rank) : who;
}

}  // namespace

// A rank that ends the communicator makes no more calls, so waiting for one of them can never end, and what it has
// called can be compared.
void Communicator::hear_who_leaves() {
  const auto arrival = bootstrap_->control().awaited_by();
  const auto called = arrival ? called_before_end(arrival->bytes) : std::nullopt;
  if (!called) return;
  const StreamOperation* on_device = streams_ ? streams_->oldest() : nullptr;
  const std::optional<uint64_t> in_stream = on_device ? on_device->sequence() : std::nullopt;
  for (const std::optional<uint64_t> awaited : {operations_.oldest_sequence(), in_stream})
    if (awaited && *awaited >= called->collectives)
      breakdown_.fail({TUTTI_PEER_FAILED, arrival->rank,
                       fmt::format("has not entered operation #{}: it destroys the communicator instead", *awaited)});
  if (called->collectives == operations_.next_sequence() && arrival->bytes != word_of_end())
    breakdown_.fail({.status = TUTTI_MISMATCH,
                     .culprit = arrival->rank,
                     .reason = fmt::format("destroys the communicator after other calls than rank {} has made", rank_),
                     .differs_from = arrival->rank});
}

std::string Communicator::word_of_end() const {
  return encode(
      JointWord{destroy_call, encode(Called{operations_.next_sequence(), reports_->recorder().calls_hash()})});
}

void Communicator::check_deadlines(uint64_t now) {
  if (const tutti_request* late = operations_.overdue(now))
    breakdown_.fail(breakdown_.late(late->timeout_ns, late->sequence));
  else if (const StreamOperation* stands = streams_ ? streams_->overdue(now) : nullptr)
    breakdown_.fail(breakdown_.late(stands->call.timeout_ns, stands->sequence()));
  else if (const Transfer* transfer = point_to_point_.overdue(now))
    breakdown_.fail(breakdown_.late(transfer->timeout_ns, std::nullopt,
                                    transfer->any_peer ? std::nullopt : std::optional(transfer->peer)));
}

std::string Communicator::standpoint() const {
  std::string where = operations_.standpoint();
  const Transfer* transfer = point_to_point_.oldest();
  const StreamOperation* on_device = streams_ ? streams_->oldest() : nullptr;
  const bool has_request = on_device && on_device->request;
  const Transfer* unmatched = has_request ? Operations::unmatched(*on_device->request) : nullptr;
  if (unmatched) transfer = unmatched;
  const bool waits_to_match = unmatched || (transfer && transfer->on_stream && transfer->timeout_ns != no_timeout);
  if (where.empty() && !waits_to_match && streams_ && streams_->pending()) where = streams_->standpoint();
  if (where.empty() && transfer) where = PointToPoint::standpoint(*transfer) + point_to_point_.hint(*transfer);
  return fmt::format("seen by rank {} in {}{}{}", rank_, name(), where.empty() ? "" : ": ", where);
}

void Communicator::out_of_memory() {
  const Hold hold(*this);
  breakdown_.fail(std::bad_alloc());
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
  if (streams_) text.add([this] { return streams_->release(); });
}

void Communicator::end_operations(tutti_status status, const std::string& text) {
  operations_.fail_all(status);
  point_to_point_.fail_all(status, text);
  if (streams_) streams_->fail_all();
}

void Communicator::on_control(Port& port, uint32_t peer, const std::byte* data, uint64_t bytes) {
  if (peer >= nranks_ || peer == rank_ || breakdown_.begun()) return;
  std::string error;
  std::optional<CallDifference> difference;
  uint32_t type = 0;
  if (bytes >= sizeof type) std::memcpy(&type, data, sizeof type);
  if (CallCheck::receives(type)) {
    error = call_check_->on_control(peer, data, bytes, operations_.next_sequence(), &difference);
  } else if (point_to_point_.on_control(peer, data, bytes, &error)) {
    difference = point_to_point_.take_difference();
  }
  if (difference)
    breakdown_.report({TUTTI_MISMATCH, difference->culprit, difference->reason});
  else if (!error.empty())
    breakdown_.report({TUTTI_MISMATCH, peer, fmt::format("sent over {} {}", port.api->name, error)});
}

void Communicator::on_peer_failed(Port& port, uint32_t peer, const char* reason) {
  // A transport that the pair does without says nothing of the peer.
  if (peer >= nranks_ || !fabric_.serves(port, peer)) return;
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
  // A rank that is ending the communicator waits for other ranks, which hear of it together with this one. So does one
  // whose caller is being asked whether the wait is to end.
  if (Interrupt::is_asking() || !carry_out_unless_inside())
    bootstrap_->control().announce(rank_, TUTTI_ABORTED, reason);
}

// For threads without the engine. The owner notices what was reported if it is inside (communicator_hold.hpp); else it
// is carried out here, before anybody comes in. False: the communicator is being ended, which is left to its owner.
bool Communicator::carry_out_unless_inside() {
  process_barrier();
  const std::lock_guard lock(mutex_);
  if (ending_) return false;
  if (inside_.load(std::memory_order_acquire)) return true;
  fabric_.disarm();
  breakdown_.carry_out();
  if (is_watched()) ActiveEngines::process().wake(*this);
  return true;
}

// ---- The end -------------------------------------------------------------------------------------------------

// How long the end waits for the other ranks. Of several communicators that are destroyed in a row the first one waits
// for a process that does not come, and those after it hardly.
std::chrono::nanoseconds Communicator::patience_at_end() const {
  const std::chrono::nanoseconds whole(configuration_.connect_timeout_ns);
  if (clock_ns() >= absent.until_ns) return whole;
  const ControlPlane& control = bootstrap_->control();
  for (uint32_t r = 0; r < nranks_; ++r)
    if (r != rank_ && std::ranges::count(absent.processes, process_of(control, r, rank_)))
      return std::min<std::chrono::nanoseconds>(whole, short_patience);
  return whole;
}

// The other ranks have not all come. Throws what to say.
void Communicator::end_late(const Failure& late, bool was_short) {
  ControlPlane& control = bootstrap_->control();
  if (!was_short) {
    absent.processes.clear();
    for (const uint32_t r : control.absent()) absent.processes.push_back(process_of(control, r, rank_));
  }
  absent.until_ns = clock_ns() + std::chrono::nanoseconds(short_patience).count();
  if (!was_short) throw late;
  throw Failure(late.status, late.text + ", and a communicator that was destroyed before has waited for that process");
}

// In checked mode destroying is a call like others: who still wants a collective is told that others do not.
void Communicator::check_end(const Deadline& deadline) {
  Call call;
  call.sequence = operations_.next_sequence();
  try {
    waiter_.until([&] {
      Interrupt::check();
      return call_check_->check(call, {}) || deadline.passed();
    });
  } catch (const std::exception& problem) {
    breakdown_.fail(problem);
  }
}

// Collective. Nothing: all ranks destroy the communicator, after the same calls. It finds what no message has shown,
// such as two broadcasts from different roots.
std::optional<Cause> Communicator::compare_ends(const Deadline& deadline, bool is_short) {
  const FlightRecorder& recorder = reports_->recorder();
  // In checked mode the ranks have met before, or no time is left.
  const auto gather = [&](const std::string& mine) {
    Deadline rest = deadline;
    rest.expire_in(std::max(deadline.left(), std::min<std::chrono::nanoseconds>(
                                                 std::chrono::nanoseconds(configuration_.connect_timeout_ns),
                                                 short_patience)));
    return bootstrap_->all_gather(mine, rest);
  };
  std::vector<std::string> all;
  try {
    all = gather(word_of_end());
  } catch (const Failure& failure) {
    if (failure.status != TUTTI_TIMEOUT) throw;
    end_late(failure, is_short);
  }
  const auto other = std::ranges::find_if(all, [](const std::string& word) { return !called_before_end(word); });
  if (other != all.end())
    return Cause{TUTTI_MISMATCH, static_cast<uint32_t>(other - all.begin()),
                 fmt::format("is in {}, rank {} in {}: all ranks must make the same calls",
                             decode<JointWord>(*other, "its word at the end").call, rank_, destroy_call)};
  const auto odd = std::ranges::find_if(all, [&](const std::string& word) { return word != all.front(); });
  if (odd == all.end()) return std::nullopt;
  std::vector<std::optional<CallReport>> reports;
  for (const std::string& bytes : gather(encode(recorder.report()))) reports.push_back(CallReport::read(bytes));
  CallDifference found = explain_end(static_cast<uint32_t>(odd - all.begin()), reports);
  return Cause{TUTTI_MISMATCH, found.culprit, found.reason + "; found when the communicator was destroyed"};
}

// All ranks meet once more, so that no rank closes a connection over which another still waits for bytes.
void Communicator::settle(const Deadline& deadline, bool is_short) {
  std::optional<Failure> why;
  std::optional<Cause> difference;
  settling_.store(true, std::memory_order_release);
  ActiveEngines::process().add(this);
  try {
    const BackgroundProgress meanwhile;
    difference = compare_ends(deadline, is_short);
    if (!difference) bootstrap_->leave_together();
  } catch (const std::exception& problem) {
    why = failure_of(problem);
  }
  ActiveEngines::process().remove(this);
  settling_.store(false, std::memory_order_release);
  if (difference) return breakdown_.fail(*difference);
  if (why) {
    const std::string text = fmt::format("{}; seen by rank {} in {}: destroy", why->text, rank_, name());
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
    fabric_.disarm();
  }
  breakdown_.carry_out();
  const bool was_whole = async_error() == TUTTI_OK;
  if (Trace* trace = reports_->recorder().trace())
    for (const tutti_link_traffic& row : traffic_rows())
      trace->link(row.peer, row.transport, row.sent_bytes, row.received_bytes);
  if (streams_) {
    waiter_.until([this] { return !streams_->oldest(); });
    streams_->end(false);  // before the ranks meet: then all have unmapped what belongs to others
  }
  if (async_error() == TUTTI_OK && open_group_)
    breakdown_.fail({TUTTI_ABORTED, rank_,
                     fmt::format("destroyed the communicator {} with a group of {} calls that was never ended", name(),
                                 open_group_->size())});
  if (async_error() == TUTTI_OK && operations_.pending())
    breakdown_.fail(
        {TUTTI_ABORTED, rank_,
         fmt::format("destroyed the communicator {} with {} operations pending", name(), operations_.pending())});
  reports_->recorder().enter(async_error() == TUTTI_OK ? TUTTI_FLIGHT_ENDING : TUTTI_FLIGHT_FAILED);
  const std::chrono::nanoseconds patience = patience_at_end();
  const bool is_short = patience.count() < static_cast<int64_t>(configuration_.connect_timeout_ns);
  const Deadline deadline = is_short ? Deadline(patience) : configuration_.connect_deadline();
  if (async_error() == TUTTI_OK) departures_.leave();
  if (async_error() == TUTTI_OK && call_check_->checked()) check_end(deadline);
  if (async_error() == TUTTI_OK && nranks_ > 1)
    settle(deadline, is_short);
  else
    breakdown_.hear_others();  // a loss that no call has met yet
  const bool broken = breakdown_.status() < 0;
  if (!broken) reports_->recorder().ended();
  // Many programs do not look at what destroying returns, and no call has said it.
  if (broken && was_whole) log(TUTTI_LOG_WARN, name(), breakdown_.text());
  return broken ? remember(async_error(), breakdown_.text()) : tutti_status{TUTTI_OK};
}

// The thread of another rank uses them still, and nobody will say when it does not any more.
void Communicator::keep_streams() {
  struct Kept {
    std::unique_ptr<Streams> streams;
    std::vector<Link> links, mapped_links;
  };
  static std::mutex mutex;
  static auto& kept = *new std::vector<Kept>;
  const std::lock_guard lock(mutex);
  log(TUTTI_LOG_WARN, name(),
      fmt::format("rank {}: the thread of another rank still puts work into this rank's stream: scratch and plans are "
                  "kept until the process ends",
                  rank_));
  kept.push_back({std::move(streams_), std::move(fabric_.links()), std::move(fabric_.mapped_links())});
}

Communicator::~Communicator() {
  bootstrap_->control().answer_roll_calls(nullptr);
  windows_.close();
  bool keep_mapped = false;
  if (streams_ && streams_->is_used_elsewhere()) {
    keep_mapped = true;
    keep_streams();
  } else if (streams_) {
    keep_mapped = !streams_->end(true);
  }
  natives_.clear();
  fabric_.close(keep_mapped);  // before the operations: what a transport has not given back must still be there
}

}  // namespace tutti::core
