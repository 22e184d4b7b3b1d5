// SPDX-License-Identifier: Apache-2.0
#include "record/flight_recorder.hpp"

#include <errno.h>
#include <fmt/format.h>
#include <sys/syscall.h>
#include <tutti/schedule.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/failure.hpp"
#include "base/hash.hpp"
#include "base/settings.hpp"
#include "record/call_site.hpp"
#include "record/process_identity.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

constexpr uint64_t line = 64;
using SiteWords = std::array<uint64_t, sizeof(tutti_flight_state::site) / sizeof(uint64_t)>;
static_assert(sizeof(SiteWords) == sizeof(CallSite::Text));
static_assert(offsetof(tutti_flight_state, site) % sizeof(uint64_t) == 0);
constexpr uint64_t lines(uint64_t bytes) { return (bytes + line - 1) / line * line; }
constexpr uint64_t state_at = lines(sizeof(tutti_flight_header));
constexpr uint64_t services_at = lines(state_at + sizeof(tutti_flight_state));
constexpr uint64_t operations_at = services_at + TUTTI_FLIGHT_SERVICES * sizeof(tutti_flight_service);
constexpr uint64_t transfers_at = operations_at + TUTTI_FLIGHT_OPERATIONS * sizeof(tutti_flight_operation);
constexpr uint64_t file_bytes = transfers_at + TUTTI_FLIGHT_TRANSFERS * sizeof(tutti_flight_transfer);

template <typename T>
T get(T& from) {
  return std::atomic_ref(from).load(std::memory_order_relaxed);
}

template <size_t capacity>
void write_text(char (&to)[capacity], std::string_view text) {
  const size_t n = std::min(text.size(), capacity - 1);
  std::memset(to + n, 0, capacity - n);
  std::memcpy(to, text.data(), n);
}

constexpr uint64_t several_threads = UINT64_MAX;
// Has a thread called two communicators that note it? Else there is no order to look at.
std::atomic<bool> several_communicators{false};

uint64_t this_thread() { return static_cast<uint64_t>(syscall(SYS_gettid)); }

}  // namespace

// The recorders of this process.
class FlightRecorder::Others {
 public:
  static Others& process() {
    static auto* others = new Others();  // threads may outlive static destruction
    return *others;
  }
  void add(const FlightRecorder* recorder) {
    const std::lock_guard lock(mutex_);
    recorders_.push_back(recorder);
  }
  void remove(const FlightRecorder* recorder) {
    const std::lock_guard lock(mutex_);
    std::erase(recorders_, recorder);
  }
  // Calls `function` for the recorders of the same rank that are in use: where threads are the ranks, those made by its
  // thread.
  template <typename Function>
  void each(const FlightRecorder& self, Function&& function) {
    const std::lock_guard lock(mutex_);
    std::vector<uint64_t> communicators;
    for (const FlightRecorder* r : recorders_)
      if (usable(*r)) communicators.push_back(get(r->state_->communicator));
    std::ranges::sort(communicators);
    const bool threads_are_ranks = std::ranges::adjacent_find(communicators) != communicators.end();
    for (const FlightRecorder* r : recorders_)
      if (r != &self && usable(*r) && (!threads_are_ranks || r->thread_ == self.thread_)) function(*r);
  }

 private:
  // A forked child has no access to the recorders of its parent.
  static bool usable(const FlightRecorder& recorder) {
    return recorder.process_ == static_cast<uint64_t>(getpid()) && get(recorder.state_->phase) == TUTTI_FLIGHT_READY;
  }
  std::mutex mutex_;
  std::vector<const FlightRecorder*> recorders_;
};

FlightRecorder::FlightRecorder(const Meeting& meeting)
    : process_(static_cast<uint64_t>(getpid())), thread_(this_thread()) {
  auto* base = static_cast<std::byte*>(place_file(file_bytes));
  auto* header = reinterpret_cast<tutti_flight_header*>(base);
  state_ = reinterpret_cast<tutti_flight_state*>(base + state_at);
  services_ = reinterpret_cast<tutti_flight_service*>(base + services_at);
  operations_ = reinterpret_cast<tutti_flight_operation*>(base + operations_at);
  transfers_ = reinterpret_cast<tutti_flight_transfer*>(base + transfers_at);
  write_header(*header);
  state_->rank = meeting.rank;
  state_->nranks = meeting.nranks;
  state_->meeting = meeting.key;
  write_text(state_->name, meeting.name);
  write_text(state_->place, meeting.place);
  enter(TUTTI_FLIGHT_MEETING);
  if (file_) try {
      file_->publish();
      path_ = file_->path();
    } catch (const Failure& failure) {  // it goes on without a name
      log(TUTTI_LOG_WARN, meeting.name, failure.text);
    }
  Others::process().add(this);
}

// The memory to record into: a file's where one is wanted and can be had.
void* FlightRecorder::place_file(uint64_t bytes) {
  const auto folder = flag_setting("TUTTI_RECORDER") ? flight_folder() : std::nullopt;
  if (folder) {
    try {
      file_ = std::make_unique<FlightFile>(*folder, bytes);
      return file_->data();
    } catch (const Failure& failure) {
      if (setting("TUTTI_RECORDER_DIR")) throw;  // asked for by name
      static std::atomic<bool> told{false};
      if (!told.exchange(true)) log(TUTTI_LOG_WARN, "tutti", failure.text + " (going on without a file)");
    }
  }
  memory_ = std::make_unique<std::byte[]>(bytes);
  return memory_.get();
}

FlightRecorder::~FlightRecorder() {
  Others::process().remove(this);
  if (path_.empty()) return;
  if (ended_)
    file_->remove();
  else
    retain_file(path_);
}

void FlightRecorder::write_header(tutti_flight_header& header) const {
  const ProcessIdentity self = this_process_identity();
  header.magic = TUTTI_FLIGHT_MAGIC;
  header.version = TUTTI_FLIGHT_VERSION;
  header.header_bytes = sizeof header;
  header.file_bytes = file_bytes;
  header.state_offset = state_at;
  header.state_bytes = sizeof(tutti_flight_state);
  header.services_offset = services_at;
  header.service_bytes = sizeof(tutti_flight_service);
  header.operations_offset = operations_at;
  header.operation_bytes = sizeof(tutti_flight_operation);
  header.transfers_offset = transfers_at;
  header.transfer_bytes = sizeof(tutti_flight_transfer);
  header.host = self.host;
  header.pid = self.pid;
  header.thread = thread_;
  header.process_start = self.start;
  header.begin_ns = clock_ns();
  header.begin_ticks = ticks();
  constexpr uint64_t known_for = 1'000'000;
  const uint64_t per_known = ticks_to_ns(known_for);
  header.ticks_per_second = per_known ? known_for * 1'000'000'000 / per_known : 0;
  header.created = static_cast<uint64_t>(std::time(nullptr));
  char host[sizeof header.host_name] = {};
  gethostname(host, sizeof host - 1);
  write_text(header.host_name, host);
  write_text(header.program, program_invocation_short_name);
  header.checksum = hash_bytes(&header, offsetof(tutti_flight_header, checksum));
}

void FlightRecorder::enter(uint32_t phase) {
  put(state_->phase_ns, clock_ns());
  put(state_->phase, phase);
}

void FlightRecorder::met(uint32_t rank, uint32_t nranks) {
  put(state_->rank, rank);
  put(state_->nranks, nranks);
}

void FlightRecorder::failed(const std::string& why) {
  write_text(state_->note, why);
  enter(TUTTI_FLIGHT_FAILED);
}

void FlightRecorder::trace_into(const TracePlace& where) {
  trace_ =
      std::make_unique<Trace>(where, Trace::Owner{state_->name, state_->communicator, state_->rank, state_->nranks});
}

void FlightRecorder::name_service(uint32_t service, const std::string& algorithm, const std::string& transports) {
  if (trace_) trace_->service(service, algorithm, transports);
  if (service >= TUTTI_FLIGHT_SERVICES) return;
  write_text(services_[service].algorithm, algorithm);
  write_text(services_[service].transports, transports);
}

uint64_t FlightRecorder::begin_transfer(const RecordedTransfer& transfer, uint32_t service, uint64_t ticks) {
  const uint64_t number = state_->transfers;
  put(state_->transfers, number + 1);
  tutti_flight_transfer begun{};
  begun.bytes = transfer.bytes;
  begun.begin_ticks = ticks;
  begun.sending = transfer.sending;
  begun.peer = transfer.peer;
  begun.tag = transfer.tag;
  begun.flags = transfer.any_tag ? TUTTI_FLIGHT_ANY_TAG : 0;
  begun.service = service;
  tutti_flight_transfer& t = transfers_[number % TUTTI_FLIGHT_TRANSFERS];
  put_words(t, begun);
  std::atomic_ref(t.number).store(number + 1, std::memory_order_release);
  return number;
}

void FlightRecorder::end_transfer(uint64_t number, uint64_t ticks, tutti_status status) {
  tutti_flight_transfer& t = transfers_[number % TUTTI_FLIGHT_TRANSFERS];
  if (t.number != number + 1) return miss();
  if (trace_) trace_->transfer(t, ticks, status);
  put(t.status, int32_t{status});
  std::atomic_ref(t.end_ticks).store(ticks, std::memory_order_release);
}

void FlightRecorder::look(uint64_t now_ns, uint64_t ticks, bool moved) {
  put(state_->look_ns, now_ns);
  put(state_->look_ticks, ticks);
  if (moved) put(state_->moved_ns, now_ns);
}

void FlightRecorder::waits(std::span<const tutti_flight_wait> waits) {
  const size_t n = std::min<size_t>(waits.size(), TUTTI_FLIGHT_WAITS);
  for (size_t i = 0; i < n; ++i) put_words(state_->wait[i], waits[i]);
  put(state_->waits, static_cast<uint32_t>(n));
}

void FlightRecorder::awaits(uint64_t number) {
  put(state_->awaited, number);
  if (number || CallSite::is_given()) return;
  awaited_ = 0;  // the next wait for the same may be elsewhere
  put(state_->site_of, uint64_t{0});
}

// To find a site costs some microseconds. A wait that is as late as this does not miss them.
void FlightRecorder::note_site(uint64_t now_ns) {
  constexpr uint64_t late_ns = 100'000'000;
  const uint64_t awaited = get(state_->awaited);
  if (!awaited) return;
  if (awaited != awaited_) {
    awaited_ = awaited;
    awaited_since_ns_ = now_ns;
  }
  const bool known = get(state_->site_of) == awaited;
  if (now_ns - awaited_since_ns_ < late_ns || (known && !CallSite::is_given())) return;
  const auto words = std::bit_cast<SiteWords>(CallSite::find());
  if (known && std::memcmp(state_->site, words.data(), sizeof words) == 0) return;
  put(state_->site_of, uint64_t{0});
  for (size_t w = 0; w < words.size(); ++w) put(reinterpret_cast<uint64_t*>(state_->site)[w], words[w]);
  std::atomic_ref(state_->site_of).store(awaited, std::memory_order_release);
}

// " (at train.py:14)"; "": nobody waits, or it is not known where.
std::string FlightRecorder::site() const {
  const uint64_t of = std::atomic_ref(state_->site_of).load(std::memory_order_acquire);
  if (!of || of != get(state_->awaited)) return {};
  SiteWords words;
  for (size_t w = 0; w < words.size(); ++w) words[w] = get(reinterpret_cast<uint64_t*>(state_->site)[w]);
  const auto text = std::bit_cast<CallSite::Text>(words);
  const std::string_view site(text.data(), strnlen(text.data(), text.size()));
  return site.empty() ? "" : fmt::format(" (at {})", site);
}

std::optional<Call> FlightRecorder::call(uint64_t sequence) const {
  tutti_flight_operation& o = operations_[sequence % TUTTI_FLIGHT_OPERATIONS];
  if (std::atomic_ref(o.number).load(std::memory_order_acquire) != sequence + 1) return std::nullopt;
  OpName name;
  for (size_t i = 0; i < name.size(); ++i) name[i] = get(op_names_[sequence % TUTTI_FLIGHT_OPERATIONS][i]);
  return Call{sequence,
              get(o.count),
              get(o.plan),
              get(o.op),
              get(o.root),
              get(o.collective),
              get(o.dtype),
              get(o.order),
              static_cast<uint16_t>(get(o.algorithms)),
              get(o.tag),
              std::bit_cast<decltype(Call::op_name_text)>(name)};
}

// Since the last sign that this rank was inside: a call's begin or end, or a wait that looked around.
uint64_t FlightRecorder::outside_ns() const {
  const uint64_t now = ticks();
  uint64_t last = get(state_->look_ticks);
  for (size_t i = 0; i < TUTTI_FLIGHT_OPERATIONS; ++i)
    last = std::max({last, get(operations_[i].begin_ticks), get(operations_[i].end_ticks)});
  for (size_t i = 0; i < TUTTI_FLIGHT_TRANSFERS; ++i)
    last = std::max({last, get(transfers_[i].begin_ticks), get(transfers_[i].end_ticks)});
  return now > last ? ticks_to_ns(now - last) : 0;
}

CallReport FlightRecorder::report() const {
  CallReport report;
  report.outside_ns = outside_ns();
  report.site = printable(site());
  for (size_t i = 0; i < TUTTI_FLIGHT_OPERATIONS; ++i) {
    tutti_flight_operation& o = operations_[i];
    const uint64_t number = std::atomic_ref(o.number).load(std::memory_order_acquire);
    report.issued = std::max(report.issued, number);
    if (number && get(o.end_ticks) == 0) report.oldest = std::min(report.oldest, number - 1);
  }
  const uint64_t first = report.issued > most_calls_reported ? report.issued - most_calls_reported : 0;
  for (uint64_t sequence = std::min(first, report.oldest); sequence < report.issued; ++sequence)
    if (const auto known = call(sequence); known && report.calls.size() < most_calls_reported)
      report.calls.push_back(*known);
  if (report.oldest != UINT64_MAX && get(state_->waits) && get(state_->wait[0].operation) == report.oldest + 1) {
    report.step = get(state_->wait[0].step);
    report.peer = get(state_->wait[0].peer);
  }
  Others::process().each(*this, [&](const FlightRecorder& other) {
    if (auto wait = other.wait(); wait && report.elsewhere.size() < most_waits_reported)
      report.elsewhere.push_back(*wait);
  });
  return report;
}

void FlightRecorder::note_caller(uint64_t sequence) {
  issued_.store(sequence + 1, std::memory_order_release);
  thread_local const uint64_t self = this_thread();
  thread_local uint64_t called = 0;
  const uint64_t last = std::exchange(called, get(state_->communicator));
  if (last && last != called) several_communicators.store(true, std::memory_order_relaxed);
  const uint64_t before = caller_.load(std::memory_order_relaxed);
  caller_.store(before == 0 || before == self ? self : several_threads, std::memory_order_relaxed);
}

bool FlightRecorder::has_same_caller(const FlightRecorder& other) const {
  const uint64_t own = caller_.load(std::memory_order_relaxed);
  return own && own != several_threads && own == other.caller_.load(std::memory_order_relaxed);
}

// When it was begun, if it is among the last.
std::optional<uint64_t> FlightRecorder::begin_of(uint64_t sequence) const {
  tutti_flight_operation& o = operations_[sequence % TUTTI_FLIGHT_OPERATIONS];
  if (std::atomic_ref(o.number).load(std::memory_order_acquire) != sequence + 1) return std::nullopt;
  return get(o.begin_ticks);
}

EarlierCalls FlightRecorder::earlier_calls(uint64_t sequence) const {
  EarlierCalls calls;
  std::array<uint64_t, std::tuple_size_v<EarlierCalls>> begins{};  // falling
  if (!several_communicators.load(std::memory_order_relaxed)) return calls;
  const auto begun = begin_of(sequence);
  if (!begun) return calls;
  Others::process().each(*this, [&](const FlightRecorder& other) {
    if (!has_same_caller(other)) return;
    uint64_t last = other.issued_.load(std::memory_order_acquire);  // the one before it, plus one
    std::optional<uint64_t> begin;
    while (last && (begin = other.begin_of(last - 1)) && *begin >= *begun) --last;
    if (!last || !begin) return;
    const auto at = static_cast<size_t>(std::ranges::upper_bound(begins, *begin, std::greater()) - begins.begin());
    if (at == calls.size()) return;
    std::shift_right(begins.begin() + at, begins.end(), 1);
    std::shift_right(calls.begin() + at, calls.end(), 1);
    begins[at] = *begin;
    calls[at] = {get(other.state_->communicator), last - 1};
  });
  return calls;
}

std::optional<FlightRecorder::LaterCall> FlightRecorder::later_call(const EarlierCalls& theirs,
                                                                    uint64_t sequence) const {
  std::optional<LaterCall> later;
  const auto begun = begin_of(sequence);
  if (!begun || theirs.front().communicator == 0) return later;
  Others::process().each(*this, [&](const FlightRecorder& other) {
    for (const EarlierCall& call : theirs) {
      if (later || call.communicator == 0 || call.communicator != get(other.state_->communicator) ||
          !has_same_caller(other))
        continue;
      const auto begin = other.begin_of(call.sequence);
      const auto made = other.call(call.sequence);
      if (!begin || *begin <= *begun || !made) continue;
      later = LaterCall{call.communicator, fmt::format("{} of {}", call_name(*made), other.state_->name)};
    }
  });
  return later;
}

// The send or receive, if it is not complete.
tutti_flight_transfer* FlightRecorder::open_transfer(uint64_t number) const {
  tutti_flight_transfer& t = transfers_[number % TUTTI_FLIGHT_TRANSFERS];
  const bool there = std::atomic_ref(t.number).load(std::memory_order_acquire) == number + 1;
  return there && get(t.end_ticks) == 0 ? &t : nullptr;
}

// The operation that a call waits in.
std::optional<WaitElsewhere> FlightRecorder::wait() const {
  const uint64_t awaited = get(state_->awaited);
  if (awaited == 0) return std::nullopt;
  WaitElsewhere wait{get(state_->communicator), (awaited & ~TUTTI_FLIGHT_TRANSFER) - 1, get(state_->rank)};
  if (awaited & TUTTI_FLIGHT_TRANSFER) {
    tutti_flight_transfer* t = open_transfer(wait.number);
    if (!t) return std::nullopt;
    wait.peer = get(t->peer);
    wait.tag = get(t->tag);
    wait.kind = get(t->sending) ? WaitElsewhere::send : WaitElsewhere::receive;
    wait.any_tag = get(t->flags) & TUTTI_FLIGHT_ANY_TAG;
    const std::string tag = wait.any_tag ? "any tag" : fmt::format("tag {}", wait.tag);
    wait.text = printable(fmt::format("a {} with {} of {}{}", wait.kind == WaitElsewhere::send ? "send" : "receive",
                                      tag, state_->name, site()));
    return wait;
  }
  const auto call = this->call(wait.number);
  if (!call || get(operations_[wait.number % TUTTI_FLIGHT_OPERATIONS].end_ticks)) return std::nullopt;
  wait.text = printable(fmt::format("{} of {}{}", call_name(*call), state_->name, site()));
  return wait;
}

bool FlightRecorder::has_issued(uint64_t sequence) const {
  for (size_t i = 0; i < TUTTI_FLIGHT_OPERATIONS; ++i)
    if (std::atomic_ref(operations_[i].number).load(std::memory_order_acquire) > sequence) return true;
  return false;
}

// Is there the other side of a send or receive? A receive from any rank, or with any tag, may be.
bool FlightRecorder::has_met(const WaitElsewhere& theirs) const {
  const uint64_t issued = get(state_->transfers);
  constexpr uint32_t any_rank = UINT32_MAX;
  const uint32_t sending = theirs.kind == WaitElsewhere::receive;
  for (uint64_t n = issued > TUTTI_FLIGHT_TRANSFERS ? issued - TUTTI_FLIGHT_TRANSFERS : 0; n < issued; ++n)
    if (auto* t = open_transfer(n);
        t && get(t->sending) == sending && (get(t->peer) == any_rank || get(t->peer) == theirs.rank) &&
        (theirs.any_tag || get(t->flags) & TUTTI_FLIGHT_ANY_TAG || get(t->tag) == theirs.tag))
      return true;
  return false;
}

bool FlightRecorder::awaits_this_rank(const WaitElsewhere& theirs) const {
  bool found = false;
  Others::process().each(*this, [&](const FlightRecorder& other) {
    if (get(other.state_->communicator) != theirs.communicator) return;
    // A receive from any rank may be served by another rank than this, if there is one.
    const bool only_this = theirs.peer == get(other.state_->rank) ||
                           (theirs.peer == UINT32_MAX && get(other.state_->nranks) == 2);
    if (theirs.kind == WaitElsewhere::collective ? !other.has_issued(theirs.number)
                                                 : only_this && !other.has_met(theirs))
      found = true;
  });
  return found;
}

}  // namespace tutti::core
