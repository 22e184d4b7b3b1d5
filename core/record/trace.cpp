// SPDX-License-Identifier: Apache-2.0
#include "record/trace.hpp"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <tutti/tutti.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <ctime>
#include <string_view>
#include <tutti/base/host_identity.hpp>
#include <tutti/base/system_text.hpp>
#include <tutti/base/text.hpp>
#include <utility>

#include "base/clock.hpp"
#include "base/hash.hpp"
#include "base/settings.hpp"
#include "base/wire.hpp"
#include "registry/host.hpp"

namespace tutti::core {
namespace {

constexpr auto flush_interval = std::chrono::milliseconds(50);
constexpr uint64_t end_bytes = 256;  // the room of the last records, also in a file that is full

static_assert(sizeof(tutti_trace_service) == 64 && sizeof(tutti_trace_call) == 64 && sizeof(tutti_trace_step) == 64);
static_assert(sizeof(tutti_trace_transfer) == 64 && sizeof(tutti_trace_clock) == 64 && sizeof(tutti_trace_lost) == 64);
static_assert(sizeof(tutti_trace_peer_clock) == 64 && sizeof(tutti_trace_link) == 64);

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

Failure trace_refused(const std::string& folder, const std::string& why) {
  return Failure(TUTTI_INVALID_ARGUMENT,
                 fmt::format("TUTTI_TRACE=\"{}\": {}; expected a folder that this process may write: make it with "
                             "mkdir -p, or unset TUTTI_TRACE",
                             folder, why));
}

// A part of a file's name.
std::string plain(std::string text) {
  for (char& c : text)
    if (!is_letter_or_digit(c) && c != '-' && c != '_') c = '_';
  return text.substr(0, 40);
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

std::optional<std::string> trace_folder() {
  std::optional<std::string> folder = setting("TUTTI_TRACE");
  if (!folder) return folder;
  struct stat status {};
  if (folder->empty()) throw trace_refused(*folder, "it names no folder");
  if (stat(folder->c_str(), &status) != 0) throw trace_refused(*folder, system_text(errno));
  if (!S_ISDIR(status.st_mode)) throw trace_refused(*folder, "it is a file");
  if (access(folder->c_str(), W_OK | X_OK) != 0) throw trace_refused(*folder, system_text(errno));
  return folder;
}

Trace::Trace(const std::string& folder, const Owner& owner)
    : path_(fmt::format("{}/{}-{:016x}-{}" TUTTI_TRACE_SUFFIX, folder, plain(owner.name), owner.communicator,
                        owner.rank)),
      file_(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600)),
      ring_(std::make_unique<Record[]>(capacity)) {
  if (!file_) throw trace_refused(folder, fmt::format("cannot create {}: {}", path_, system_text(errno)));
  rlimit largest{};  // a longer file would end the process by SIGXFSZ
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0) most_bytes_ = std::min<uint64_t>(most_bytes_, largest.rlim_cur);
  most_bytes_ -= std::min(most_bytes_, end_bytes);
  write_header(owner);
  if (full_) throw trace_refused(folder, fmt::format("cannot write {}: {}", path_, system_text(errno)));
  thread_ = thread_without_signals([this] { run(); });
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
        fmt::format("{}: {} records were dropped, since {}", path_, lost,
                    full_ ? "the file could not grow" : "they came faster than they could be written"));
}

void Trace::write_header(const Owner& owner) {
  tutti_trace_header header{};
  header.magic = TUTTI_TRACE_MAGIC;
  header.version = TUTTI_TRACE_VERSION;
  header.header_bytes = sizeof header;
  header.record_bytes = sizeof(Record);
  header.rank = owner.rank;
  header.nranks = owner.nranks;
  header.pid = static_cast<uint32_t>(getpid());
  header.communicator = owner.communicator;
  header.clock = clock_identity();
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  header.created_ns = static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
  header.least_step_call = least_step_call;
  fill(header.name, owner.name);
  gethostname(header.host_name, sizeof header.host_name - 1);
  fill(header.program, program_invocation_short_name);
  header.checksum = hash_bytes(&header, offsetof(tutti_trace_header, checksum));
  write(&header, sizeof header);
  write_clock();
}

void Trace::write_clock() {
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
  write(&best, sizeof best);
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
  finish();
}

void Trace::finish() {
  save();
  const bool full = std::exchange(full_, false);
  most_bytes_ += end_bytes;
  write_clock();
  const tutti_trace_lost end{TUTTI_TRACE_END, 0, lost_.load(std::memory_order_relaxed), {}};
  write(&end, sizeof end);
  full_ |= full;
}

// Writes what is in the ring, and how the clocks stand.
void Trace::save() {
  const uint64_t from = saved_.load(std::memory_order_relaxed), to = written_.load(std::memory_order_acquire);
  if (from == to) return;
  for (uint64_t at = from; at < to;) {
    const uint64_t n = std::min(to - at, capacity - at % capacity);
    if (!write(&ring_[at % capacity], n * sizeof(Record))) lost_.fetch_add(n, std::memory_order_relaxed);
    saved_.store(at += n, std::memory_order_release);
  }
  write_clock();
  const uint64_t lost = lost_.load(std::memory_order_relaxed);
  if (lost == std::exchange(told_lost_, lost)) return;
  const tutti_trace_lost record{TUTTI_TRACE_LOST, 0, lost, {}};
  write(&record, sizeof record);
}

bool Trace::write(const void* data, uint64_t bytes) {
  if (full_ || file_bytes_ + bytes > most_bytes_) return !(full_ = true);
  for (const char* at = static_cast<const char*>(data); bytes;) {
    const ssize_t n = ::write(file_.get(), at, bytes);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return !(full_ = true);
    at += n;
    bytes -= static_cast<uint64_t>(n);
    file_bytes_ += static_cast<uint64_t>(n);
  }
  return true;
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
