// SPDX-License-Identifier: Apache-2.0
#include "record/trace.hpp"

#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <tutti/registry.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>
#include <tutti/base/host_identity.hpp>
#include <utility>

#include "base/failure.hpp"
#include "base/hash.hpp"
#include "base/settings.hpp"
#include "base/wire.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

constexpr auto flush_interval = std::chrono::milliseconds(50);

static_assert(sizeof(tutti_trace_service) == 64 && sizeof(tutti_trace_call) == 64 && sizeof(tutti_trace_step) == 64);
static_assert(sizeof(tutti_trace_transfer) == 64 && sizeof(tutti_trace_clock) == 64 && sizeof(tutti_trace_lost) == 64);
static_assert(sizeof(tutti_trace_peer_clock) == 64 && sizeof(tutti_trace_link) == 64 && sizeof(tutti_trace_tag) == 64);

struct Stamp {
  uint64_t clock = 0;  // its identity
  uint64_t ns = 0;

  static void fields(auto& wire, auto& stamp) { wire(stamp.clock, stamp.ns); }
};

// The text without its end where it is too long.
template <size_t capacity>
void fill(char (&to)[capacity], std::string_view text) {
  std::memcpy(to, text.data(), std::min(text.size(), capacity));
}

// CLOCK_MONOTONIC is the same for all processes of a boot that are in one time namespace.
uint64_t clock_identity() {
  static const uint64_t identity = hash_text(host_space("time"));
  return identity;
}

// The clock's ticks and ns at one moment.
tutti_trace_clock read_clock() {
  // The thread may be interrupted between the clocks: of some readings the quickest counts.
  tutti_trace_clock best{TUTTI_TRACE_CLOCK, 0, 0, 0, {}};
  uint64_t least = UINT64_MAX;
  for (int reading = 0; reading < 5; ++reading) {
    const uint64_t before = ticks(), ns = clock_ns(), took = ticks() - before;
    if (took >= least) continue;
    least = took;
    best.ns = ns;
    best.ticks = before + took / 2;
  }
  return best;
}

// The failure where a tracer refuses.
Failure refused(const std::string& text, tutti_status status, const tutti_tracer& tracer) {
  std::string why = take_plugin_error();
  if (why.empty()) why = fmt::format("the tracer {} gives no reason", tracer.name);
  return Failure(status, fmt::format("TUTTI_TRACE=\"{}\": {}", text, why));
}

// A thread of the library must not take the application's signals.
template <typename Function>
std::thread thread_without_signals(Function&& function) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  try {
    std::thread made(function);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return made;
  } catch (...) {
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    throw;
  }
}

}  // namespace

std::optional<TracePlace> trace_place() {
  const std::optional<std::string> text = setting("TUTTI_TRACE");
  if (!text) return std::nullopt;
  const auto [name, place] = plugin_place(*text).value_or(PluginPlace{"file", *text});
  std::string error;
  const tutti_tracer* const tracer = find_tracer(name, &error);
  if (!tracer) throw Failure(TUTTI_NOT_FOUND, fmt::format("TUTTI_TRACE=\"{}\": {}", *text, error));
  if (const tutti_status status = tracer->check(tracer->self, place.c_str()); status < 0)
    throw refused(*text, status, *tracer);
  return TracePlace{tracer, place};
}

Trace::Trace(const TracePlace& where, const Owner& owner)
    : tracer_(*where.tracer),
      name_(fmt::format("rank {} of {}", owner.rank, owner.name)),
      ring_(std::make_unique<Record[]>(capacity)) {
  const tutti_tracer_config config{sizeof config,   owner.rank,          owner.nranks,
                                   sizeof(Record),  owner.communicator,  clock_identity(),
                                   least_step_call, where.place.c_str(), owner.name.c_str()};
  if (const tutti_status status = tracer_.open(tracer_.self, &config, &tracing_); status < 0)
    throw refused(setting("TUTTI_TRACE").value_or(where.place), status, tracer_);
  const tutti_trace_clock now = read_clock();
  write(&now, 1);
  try {
    thread_ = thread_without_signals([this] { run(); });
  } catch (...) {
    tracer_.close(tracing_, nullptr, 0);
    throw;
  }
}

Trace::~Trace() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
  if (const uint64_t lost = lost_.load(std::memory_order_relaxed))
    log(TUTTI_LOG_WARN, "trace",
        fmt::format("{}: {} records were dropped, since {}", name_, lost,
                    refusal_.empty() ? "they came faster than they could be written" : refusal_));
}

void Trace::service(uint32_t service, const std::string& algorithm, const std::string& transports) {
  tutti_trace_service record{TUTTI_TRACE_SERVICE, service, {}, {}};
  fill(record.algorithm, algorithm);
  fill(record.transports, transports);
  put(record);
}

void Trace::link(uint32_t peer, const char* transport, uint64_t sent, uint64_t received) {
  tutti_trace_link record{TUTTI_TRACE_LINK, peer, sent, received, {}};
  fill(record.transport, transport);
  put(record);
}

// The ring looked full. False: it is, and the record is dropped.
bool Trace::find_room(uint64_t at) {
  known_saved_ = saved_.load(std::memory_order_acquire);
  if (at - known_saved_ < capacity) return true;
  lost_.fetch_add(1, std::memory_order_relaxed);
  return false;
}

void Trace::run() {
  // Ranks that spin on all cores must not be put aside for the sake of their traces.
  constexpr int least_urgent = 19;
  setpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)), least_urgent);
  for (std::unique_lock lock(mutex_); !stop_;) {
    wake_.wait_for(lock, flush_interval);
    lock.unlock();
    save();
    lock.lock();
  }
  save();
  const tutti_trace_clock now = read_clock();
  const tutti_trace_lost end{TUTTI_TRACE_END, 0, lost_.load(std::memory_order_relaxed), {}};
  std::array<Record, 2> last;
  std::memcpy(&last[0], &now, sizeof now);
  std::memcpy(&last[1], &end, sizeof end);
  tracer_.close(tracing_, last.data(), last.size());
}

// Hands over what is in the ring, and how the clocks stand.
void Trace::save() {
  const uint64_t from = saved_.load(std::memory_order_relaxed), to = written_.load(std::memory_order_acquire);
  if (from == to) return;
  for (uint64_t at = from; at < to;) {
    const uint64_t n = std::min(to - at, capacity - at % capacity);
    if (!write(&ring_[at % capacity], n)) lost_.fetch_add(n, std::memory_order_relaxed);
    saved_.store(at += n, std::memory_order_release);
  }
  const tutti_trace_clock now = read_clock();
  write(&now, 1);
  const uint64_t lost = lost_.load(std::memory_order_relaxed);
  if (lost == std::exchange(told_lost_, lost)) return;
  const tutti_trace_lost record{TUTTI_TRACE_LOST, 0, lost, {}};
  write(&record, 1);
}

bool Trace::write(const void* records, uint64_t n) {
  if (tracer_.write(tracing_, records, n) >= 0) return true;
  refusal_ = take_plugin_error();
  if (refusal_.empty()) refusal_ = fmt::format("the tracer {} has taken no more", tracer_.name);
  return false;
}

void Trace::exchange_clocks(Trace* trace, uint32_t rank, const Gather& gather) {
  constexpr uint64_t rounds = 4;  // the first one only brings the ranks together
  for (uint64_t round = 0; round < rounds; ++round) {
    const Stamp mine{clock_identity(), clock_ns()};
    const std::vector<std::string> words = gather(encode(mine));
    const uint64_t received = clock_ns();
    const auto all = decode_all<Stamp>(words, "time for TUTTI_TRACE");
    for (uint32_t peer = 0; peer < all.size(); ++peer) {
      const Stamp& theirs = all[peer];
      if (trace && peer != rank && theirs.clock != mine.clock)
        trace->put(tutti_trace_peer_clock{
            TUTTI_TRACE_PEER_CLOCK, peer, theirs.clock, mine.ns, theirs.ns, received, round, {}});
    }
  }
}

}  // namespace tutti::core
