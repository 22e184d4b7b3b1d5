// SPDX-License-Identifier: Apache-2.0
#include "comm/ending.hpp"

#include <fmt/format.h>
#include <tutti/registry.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "base/deadline.hpp"
#include "base/failure.hpp"
#include "bootstrap/bootstrap.hpp"
#include "comm/progress_engine.hpp"
#include "net/interrupt.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

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

std::string word_of_end(const ProgressEngine& engine) {
  return encode(JointWord{
      destroy_call, encode(Called{engine.operations.next_sequence(), engine.base.reports.recorder().calls_hash()})});
}

class Ending {
 public:
  explicit Ending(ProgressEngine& engine) : engine_(engine), base_(engine.base), breakdown_(engine.breakdown) {}
  void meet();

 private:
  bool is_short() const { return patience_.count() < static_cast<int64_t>(base_.configuration.connect_timeout_ns); }
  std::chrono::nanoseconds patience() const;
  [[noreturn]] void be_late(const Failure& late) const;
  void check();
  std::optional<Cause> compare() const;
  void quiesce();

  ProgressEngine& engine_;
  Foundation& base_;
  Breakdown& breakdown_;
  const std::chrono::nanoseconds patience_ = patience();
  const Deadline deadline_ = is_short() ? Deadline(patience_) : base_.configuration.connect_deadline();
};

// How long the end waits for the other ranks. Of several communicators that are destroyed in a row the first one waits
// for a process that does not come, and those after it hardly.
std::chrono::nanoseconds Ending::patience() const {
  const std::chrono::nanoseconds whole(base_.configuration.connect_timeout_ns);
  if (clock_ns() >= absent.until_ns) return whole;
  for (uint32_t r = 0; r < base_.nranks(); ++r)
    if (r != base_.rank() && std::ranges::count(absent.processes, process_of(base_.control(), r, base_.rank())))
      return std::min<std::chrono::nanoseconds>(whole, short_patience);
  return whole;
}

// The other ranks have not all come. Throws what to say.
void Ending::be_late(const Failure& late) const {
  ControlPlane& control = base_.control();
  absent.until_ns = clock_ns() + std::chrono::nanoseconds(short_patience).count();
  if (is_short())
    throw Failure(late.status,
                  late.text + ", and a communicator that was destroyed before has waited for that process");
  absent.processes.clear();
  for (const uint32_t r : control.absent()) absent.processes.push_back(process_of(control, r, base_.rank()));
  throw late;
}

// In checked mode destroying is a call like others: a rank that still wants a collective is told that others do not.
void Ending::check() {
  Call call;
  call.sequence = engine_.operations.next_sequence();
  try {
    engine_.waiter.until([&] {
      Interrupt::check();
      return engine_.call_check.check(call, {}) || deadline_.passed();
    });
  } catch (const std::exception& problem) {
    breakdown_.fail(problem);
  }
}

// Nothing: all ranks destroy the communicator, after the same calls. It finds what no message has shown, such as two
// broadcasts from different roots.
std::optional<Cause> Ending::compare() const {
  // In checked mode the ranks have met before, or no time is left.
  const auto gather = [&](const std::string& mine) {
    Deadline rest = deadline_;
    rest.expire_in(std::max(deadline_.left(),
                            std::min<std::chrono::nanoseconds>(
                                std::chrono::nanoseconds(base_.configuration.connect_timeout_ns), short_patience)));
    return base_.bootstrap->all_gather(mine, rest);
  };
  std::vector<std::string> all;
  try {
    all = gather(word_of_end(engine_));
  } catch (const Failure& failure) {
    if (failure.status != TUTTI_TIMEOUT) throw;
    be_late(failure);
  }
  for (uint32_t r = 0; r < all.size(); ++r) {
    const std::string what = fmt::format("rank {}'s word at the end", r);
    const auto word = decode<JointWord>(all[r], what.c_str());
    if (word.call != destroy_call)
      return Cause{TUTTI_MISMATCH, r,
                   fmt::format("is in {}, rank {} in {}: all ranks must make the same calls", word.call, base_.rank(),
                               destroy_call)};
    (void)decode<Called>(word.bytes, what.c_str());
  }
  const auto odd = std::ranges::find_if(all, [&](const std::string& word) { return word != all.front(); });
  if (odd == all.end()) return std::nullopt;
  std::vector<std::optional<CallReport>> reports;
  for (const std::string& bytes : gather(encode(base_.reports.recorder().report())))
    reports.push_back(CallReport::read(bytes));
  CallDifference found = explain_end(static_cast<uint32_t>(odd - all.begin()), reports);
  return Cause{TUTTI_MISMATCH, found.culprit, found.reason + "; found when the communicator was destroyed"};
}

// All ranks meet once more, so that no rank closes a connection over which another still waits for bytes.
void Ending::quiesce() {
  std::optional<Failure> why;
  std::optional<Cause> difference;
  engine_.lock.set_quiescing(true);
  try {
    const BackgroundProgress meanwhile;
    difference = compare();
    if (!difference) base_.bootstrap->leave_together();
  } catch (const std::exception& problem) {
    why = failure_of(problem);
  }
  engine_.lock.set_quiescing(false);
  if (difference) return breakdown_.fail(*difference);
  if (why) {
    const std::string text = fmt::format("{}; seen by rank {} in {}: destroy", why->text, base_.rank(), base_.name());
    base_.bootstrap->announce_failure(TUTTI_ABORTED, "destroyed the communicator without the others: " + why->text);
    breakdown_.end_alone(why->status, text);
    return;
  }
  // Reports that others sent before they came here have arrived. That they leave now is no loss.
  engine_.poll();
  if (const auto told = breakdown_.reported(); told && told->status == TUTTI_MISMATCH) breakdown_.fail(*told);
}

void Ending::meet() {
  const auto is_sound = [this] { return breakdown_.error() == TUTTI_OK; };
  if (is_sound()) engine_.departures.leave();
  if (is_sound() && engine_.call_check.checked()) check();
  if (is_sound() && base_.nranks() > 1)
    quiesce();
  else
    breakdown_.poll_others();  // a loss that no call has met yet
}

}  // namespace

void check_ending_peer(ProgressEngine& engine) {
  const Foundation& base = engine.base;
  const auto arrival = base.control().awaited_by();
  const auto called = arrival ? called_before_end(arrival->bytes) : std::nullopt;
  if (!called) return;
  const StreamOperation* on_device = engine.streams ? engine.streams->oldest() : nullptr;
  const std::optional<uint64_t> in_stream = on_device ? on_device->sequence() : std::nullopt;
  for (const std::optional<uint64_t> awaited : {engine.operations.oldest_sequence(), in_stream})
    if (awaited && *awaited >= called->collectives)
      engine.breakdown.fail(
          {TUTTI_PEER_FAILED, arrival->rank,
           fmt::format("has not entered operation #{}: it destroys the communicator instead", *awaited)});
  if (called->collectives == engine.operations.next_sequence() && arrival->bytes != word_of_end(engine))
    engine.breakdown.fail(
        {.status = TUTTI_MISMATCH,
         .culprit = arrival->rank,
         .reason = fmt::format("destroys the communicator after other calls than rank {} has made", base.rank()),
         .differs_from = arrival->rank});
}

tutti_status end_together(ProgressEngine& engine, std::optional<size_t> open_group) {
  Foundation& base = engine.base;
  Breakdown& breakdown = engine.breakdown;
  FlightRecorder& recorder = base.reports.recorder();
  engine.lock.close();
  breakdown.carry_out();
  const bool was_whole = breakdown.error() == TUTTI_OK;
  if (Trace* trace = recorder.trace())
    for (const tutti_link_traffic& row : engine.traffic())
      trace->link(row.peer, row.transport, row.sent_bytes, row.received_bytes);
  if (Streams* const streams = engine.streams.get()) {
    engine.waiter.until([streams] { return !streams->oldest(); });
    try {
      streams->end(false);  // before the ranks meet: then all have unmapped what belongs to others
    } catch (const std::exception& problem) {
      breakdown.fail(problem);
    }
  }
  const auto left = [&](const std::string& what) {
    if (breakdown.error() == TUTTI_OK)
      breakdown.fail(
          {TUTTI_ABORTED, base.rank(), fmt::format("destroyed the communicator {} with {}", base.name(), what)});
  };
  if (open_group) left(fmt::format("a group of {} calls that was never ended", *open_group));
  if (const uint64_t pending = engine.operations.pending()) left(fmt::format("{} operations pending", pending));
  recorder.enter(breakdown.error() == TUTTI_OK ? TUTTI_FLIGHT_ENDING : TUTTI_FLIGHT_FAILED);
  Ending(engine).meet();
  const bool broken = breakdown.status() < 0;
  if (!broken) recorder.ended();
  // Many programs do not look at what destroying returns, and no call has said it.
  if (broken && was_whole) log(TUTTI_LOG_WARN, base.name(), breakdown.text());
  return broken ? breakdown.remember(breakdown.error(), breakdown.text()) : tutti_status{TUTTI_OK};
}

}  // namespace tutti::core
