// SPDX-License-Identifier: Apache-2.0
//
// The machine's limits: hand-written exchanges of two pinned processes, which know each other's memory and do
// nothing but the work. No library can be faster by much.
//
// usage: limits SIZES COPIES MILLISECONDS
//
// One line of JSON for each yardstick and size, with the times of seven batches of calls. COPIES are the sizes of what
// goes both ways: staged_copy, fetch, fetch_direct, sockets and own. With COMPARE_LINE (line.h) a line of JSON also has
// the time of a cache line right before and right after its calls.
//
//   line      a cache line there and back, once: the limit of the smallest messages
//   staged    all_reduce of private memory through slots in shared memory
//   mapped    all_reduce of memory that both processes map: each reduces a half into both results
//   direct    all_reduce of private memory by process_vm_readv
//   staged_copy, fetch, fetch_direct   each process gets as many bytes of the other: through slots, out of memory that
//             both map, by process_vm_readv
//   own       each process copies as many bytes of its private memory
//   staged_one, fetch_one, fetch_one_direct   the same one way: only the second process gets them
//   sockets   as many bytes both ways over a TCP connection on the loopback interface, busy polled
//
// Where there are several ways to do it, each is tried for a short time and the fastest is measured: slots of 4 KiB to
// 256 KiB, exchange of everything or of halves, stores that pass the caches by or not.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>
#ifdef __AVX__
#include <immintrin.h>
#endif

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

#include "line.h"
#include "loop.h"

namespace {

constexpr int batches = 7, batches_to_try = 3;
constexpr size_t slots = 4, most_slot_bytes = 256 << 10;
constexpr unsigned most_seconds = 300;

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "compare: limits: %s: %s\n", what, std::strerror(errno));
  std::_Exit(1);
}

void relax() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// A counter on a cache line pair of its own.
struct alignas(128) Counter {
  std::atomic<uint64_t> value{0};
  void await(uint64_t least) const {
    while (value.load(std::memory_order_acquire) < least) relax();
  }
};

// Both processes map this.
struct Board {
  Counter arrived[2], sent[2], taken[2], returned[2], collected[2];
  std::atomic<uint64_t> calls{0};
  float batch_us[2][batches];
  pid_t process[2];
  float* in[2];  // private memory, by address in its process
  float* out[2];
};

// One way to do the work.
struct Way {
  bool past_caches = false;
  size_t piece = 0;  // floats in a slot
  bool halves = false;
};

void* map_shared(size_t bytes) {
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("mmap");
  return memory;
}

// out[i] = and_out[i] = a[i] + b[i]; and_out may be null, b may be null (a copy). `past_caches`: of the stores.
void combine(float* out, float* and_out, const float* a, const float* b, size_t n, bool past_caches) {
  size_t i = 0;
#ifdef __AVX__
  const auto aligned = [](const void* p) { return reinterpret_cast<uintptr_t>(p) % 32 == 0; };
  if (past_caches && aligned(out) && (!and_out || aligned(and_out))) {
    for (; i + 8 <= n; i += 8) {
      __m256 value = _mm256_loadu_ps(a + i);
      if (b) value = _mm256_add_ps(value, _mm256_loadu_ps(b + i));
      _mm256_stream_ps(out + i, value);
      if (and_out) _mm256_stream_ps(and_out + i, value);
    }
    _mm_sfence();
  }
#else
  (void)past_caches;
#endif
  for (; i < n; ++i) {
    const float value = b ? a[i] + b[i] : a[i];
    out[i] = value;
    if (and_out) and_out[i] = value;
  }
}

class Yard {
 public:
  Yard(size_t most, double limit_us) : limit_us_(limit_us), floats_(most / sizeof(float) + 1024) {
    board_ = new (map_shared(sizeof(Board))) Board;
    for (auto& ring : rings_) ring = static_cast<float*>(map_shared(slots * most_slot_bytes));
    for (auto& memory : shared_) memory = static_cast<float*>(map_shared(floats_ * sizeof(float)));
    connect_sockets();
    const pid_t child = fork();
    if (child < 0) fail("fork");
    alarm(most_seconds);  // a process that waits for a dead one ends
    me_ = child ? 0 : 1;
    other_ = 1 - me_;
    child_ = child;
    pin(me_);
    socket_ = sockets_[me_];
    close(sockets_[other_]);
    in_ = static_cast<float*>(ordinary_memory(floats_ * sizeof(float)));
    out_ = static_cast<float*>(ordinary_memory(floats_ * sizeof(float)));
    for (size_t i = 0; i < floats_; ++i) in_[i] = shared_[me_][i] = static_cast<float>(me_ + 1), out_[i] = 0;
    std::fill_n(shared_[2 + me_], floats_, 0.0F);
    board_->process[me_] = getpid();
    board_->in[me_] = in_;
    board_->out[me_] = out_;
    meet();
  }

  // Of what goes one way, and of reductions.
  void measure(size_t bytes) {
    const size_t n = std::max<size_t>(bytes / sizeof(float), 2);
    if (!met_line_) fastest("line", 2, plain_, [this](const Way&) { meet(), meet(); });
    met_line_ = true;
    fastest("staged", n, slot_ways(n, true), [this, n](const Way& way) {
      way.halves ? staged_halves(n, way) : staged(n, way, true, true, true);
    });
    require(out_[0] == 3 && out_[n - 1] == 3, "staged: wrong result");
    fastest("mapped", n, stores_, [this, n](const Way& way) { mapped(n, way.past_caches); });
    require(shared_[2 + me_][0] == 3 && shared_[2 + me_][n - 1] == 3, "mapped: wrong result");
    std::fill_n(out_, n, 0.0F);
    fastest("staged_one", n, slot_ways(n, false), [this, n](const Way& way) { staged(n, way, !me_, me_, false); });
    require(!me_ || is_theirs(n), "staged_one: wrong result");
    fastest("fetch_one", n, stores_, [this, n](const Way& way) { fetch(n, way, me_); });
    if (!may_read()) return;
    fastest("direct", n, plain_, [this, n](const Way&) { direct(n); });
    require(out_[0] == 3 && out_[n - 1] == 3, "direct: wrong result");
    fastest("fetch_one_direct", n, plain_, [this, n](const Way&) { fetch_direct(n, me_); });
  }

  // Of what goes both ways.
  void measure_copies(size_t bytes) {
    const size_t n = std::max<size_t>(bytes / sizeof(float), 2);
    fastest("staged_copy", n, slot_ways(n, false), [this, n](const Way& way) { staged(n, way, true, true, false); });
    require(is_theirs(n), "staged_copy: wrong result");
    fastest("fetch", n, stores_, [this, n](const Way& way) { fetch(n, way, true); });
    require(is_theirs(n), "fetch: wrong result");
    if (may_read()) fastest("fetch_direct", n, plain_, [this, n](const Way&) { fetch_direct(n, true); });
    fastest("own", n, stores_, [this, n](const Way& way) {
      combine(out_, nullptr, in_, nullptr, n, way.past_caches);
    });
    fastest("sockets", n, plain_, [this, n](const Way&) { over_sockets(n * sizeof(float)); });
  }

  int end() {
    if (me_) std::_Exit(0);
    int status = 0;
    waitpid(child_, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
  }

 private:
  static void require(bool right, const char* what) {
    if (right) return;
    std::fprintf(stderr, "compare: limits: %s\n", what);
    std::_Exit(1);
  }

  // Is the result the other process's input?
  bool is_theirs(size_t n) const { return out_[0] == 2.0F - me_ && out_[n - 1] == 2.0F - me_; }

  void fetch(size_t n, const Way& way, bool gets) {
    meet();
    if (gets) combine(out_, nullptr, shared_[other_], nullptr, n, way.past_caches);
    meet();
  }

  void fetch_direct(size_t n, bool gets) {
    meet();
    if (gets) read(out_, board_->in[other_], n);
    meet();
  }

  // The slot sizes that suit `n` floats, with each kind of stores.
  static std::vector<Way> slot_ways(size_t n, bool halves_too) {
    std::vector<Way> ways;
    for (size_t bytes = 4 << 10; bytes <= most_slot_bytes; bytes *= 4)
      if (const size_t piece = bytes / sizeof(float);
          (piece * 64 >= n || bytes == most_slot_bytes) && (ways.empty() || piece <= n))
        for (const bool past : {false, true}) {
          ways.push_back({.past_caches = past, .piece = piece});
          if (halves_too) ways.push_back({.past_caches = past, .piece = piece, .halves = true});
        }
    return ways;
  }

  void meet() {
    ++met_;
    board_->arrived[me_].value.store(met_, std::memory_order_release);
    board_->arrived[other_].await(met_);
  }

  // Tries each way for a short time and prints the batches of the fastest one. Both processes see the same times, so
  // they choose the same way.
  void fastest(const char* name, size_t n, const std::vector<Way>& ways, const std::function<void(const Way&)>& body) {
    const auto median = [](std::vector<float> all) {
      std::ranges::sort(all);
      return all[all.size() / 2];
    };
    const Way* best = &ways.front();
    float best_us = 0;
    for (const Way& way : ways) {
      if (ways.size() == 1) break;
      const float us = median(batches_of(limit_us_ / 8, batches_to_try, [&] { body(way); }));
      if (best_us == 0 || us < best_us) best = &way, best_us = us;
    }
    const double before = wanted_line_us(me_);
    const auto times = batches_of(limit_us_, batches, [&] { body(*best); });
    const double after = line_us(me_);
    if (me_) return;
    std::printf("{\"yardstick\": \"%s\", \"bytes\": %zu, \"us\": [", name, n * sizeof(float));
    for (int i = 0; i < batches; ++i) std::printf("%s%.4g", i ? ", " : "", static_cast<double>(times[i]));
    std::printf("]");
    if (after > 0) std::printf(", \"line_us\": [%.4g, %.4g]", before, after);
    std::printf("}\n");
    std::fflush(stdout);
  }

  template <typename Body>
  std::vector<float> batches_of(double limit_us, int count, Body&& body) {
    using Clock = std::chrono::steady_clock;
    const auto us = [](Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); };
    body();
    meet();
    auto begin = Clock::now();
    for (int i = 0; i < 2; ++i) body();
    const double estimate = us(Clock::now() - begin) / 2;
    if (!me_)
      board_->calls.store(static_cast<uint64_t>(std::clamp(limit_us / count / std::max(estimate, 0.01), 1.0, 1e6)));
    meet();
    const uint64_t calls = board_->calls.load();
    for (int batch = 0; batch < count; ++batch) {
      meet();
      begin = Clock::now();
      for (uint64_t i = 0; i < calls; ++i) body();
      board_->batch_us[me_][batch] = static_cast<float>(us(Clock::now() - begin) / static_cast<double>(calls));
    }
    meet();
    std::vector<float> longest(static_cast<size_t>(count));
    for (int batch = 0; batch < count; ++batch)
      longest[batch] = std::max(board_->batch_us[0][batch], board_->batch_us[1][batch]);
    meet();
    return longest;
  }

  // Everything travels in slots of the sender's ring. The receiver copies it, or reduces it with its own.
  void staged(size_t n, const Way& way, bool sends, bool receives, bool reduces) {
    const size_t piece = std::min(way.piece, n), pieces = (n + piece - 1) / piece;
    size_t sent = sends ? 0 : pieces, taken = receives ? 0 : pieces;
    while (sent < pieces || taken < pieces) {
      if (sent < pieces && sent < taken + 2 &&
          sent_ - board_->taken[me_].value.load(std::memory_order_acquire) < slots) {
        const size_t from = sent * piece;
        combine(rings_[me_] + sent_ % slots * piece, nullptr, in_ + from, nullptr, std::min(piece, n - from),
                way.past_caches);
        board_->sent[me_].value.store(++sent_, std::memory_order_release);
        ++sent;
      } else if (taken < pieces && board_->sent[other_].value.load(std::memory_order_acquire) > taken_) {
        const size_t from = taken * piece;
        combine(out_ + from, nullptr, rings_[other_] + taken_ % slots * piece, reduces ? in_ + from : nullptr,
                std::min(piece, n - from), false);
        board_->taken[other_].value.store(++taken_, std::memory_order_release);
        ++taken;
      } else {
        relax();
      }
    }
  }

  // Each reduces its half. Slices of the peer's half travel to it in slots of one ring, results come back in another's.
  void staged_halves(size_t n, const Way& way) {
    const size_t half = n / 2, in_slot = std::min(way.piece, n - half);
    const bool past = way.past_caches;
    const size_t slices = (n - half + in_slot - 1) / in_slot;  // of the larger half
    const auto begin_of = [&](int rank, size_t slice) {
      const size_t size = rank ? n - half : half;
      return (rank ? half : 0) + std::min(slice * in_slot, size);
    };
    const auto slot = [&](int ring, uint64_t count) { return rings_[ring] + count % slots * in_slot; };
    size_t sent = 0, reduced = 0, collected = 0;
    while (sent < slices || reduced < slices || collected < slices) {
      if (sent < slices && sent < reduced + 2 &&
          sent_ - board_->taken[me_].value.load(std::memory_order_acquire) < slots) {
        const size_t from = begin_of(other_, sent);
        combine(slot(me_, sent_), nullptr, in_ + from, nullptr, begin_of(other_, sent + 1) - from, past);
        board_->sent[me_].value.store(++sent_, std::memory_order_release);
        ++sent;
      }
      if (reduced < slices && board_->sent[other_].value.load(std::memory_order_acquire) > taken_ &&
          returned_ - board_->collected[me_].value.load(std::memory_order_acquire) < slots) {
        const size_t from = begin_of(me_, reduced);
        combine(out_ + from, slot(2 + me_, returned_), slot(other_, taken_), in_ + from,
                begin_of(me_, reduced + 1) - from, past);
        board_->taken[other_].value.store(++taken_, std::memory_order_release);
        board_->returned[me_].value.store(++returned_, std::memory_order_release);
        ++reduced;
      }
      if (board_->returned[other_].value.load(std::memory_order_acquire) > collected_) {
        const size_t from = begin_of(other_, collected);
        combine(out_ + from, nullptr, slot(2 + other_, collected_), nullptr, begin_of(other_, collected + 1) - from,
                false);
        board_->collected[other_].value.store(++collected_, std::memory_order_release);
        ++collected;
      }
      relax();
    }
  }

  void mapped(size_t n, bool past) {
    const size_t half = n / 2, from = me_ ? half : 0, size = me_ ? n - half : half;
    meet();
    combine(shared_[2 + me_] + from, shared_[2 + other_] + from, shared_[0] + from, shared_[1] + from, size, past);
    meet();
  }

  void direct(size_t n) {
    constexpr size_t piece = (64 << 10) / sizeof(float);
    static std::vector<float> room(piece);
    const size_t half = n / 2, from = me_ ? half : 0, to = me_ ? n : half;
    meet();
    for (size_t at = from; at < to; at += piece) {
      const size_t size = std::min(piece, to - at);
      read(room.data(), board_->in[other_] + at, size);
      combine(out_ + at, nullptr, in_ + at, room.data(), size, false);
    }
    meet();
    const size_t theirs = me_ ? 0 : half;
    read(out_ + theirs, board_->out[other_] + theirs, me_ ? half : n - half);
    meet();
  }

  void read(float* to, const float* from, size_t n) const {
    iovec mine{to, n * sizeof(float)}, theirs{const_cast<float*>(from), n * sizeof(float)};
    if (process_vm_readv(board_->process[other_], &mine, 1, &theirs, 1, 0) != static_cast<ssize_t>(mine.iov_len))
      fail("process_vm_readv");
  }

  // Does the kernel's policy let both read each other?
  bool may_read() {
    float one = 0;
    iovec mine{&one, sizeof one}, theirs{board_->in[other_], sizeof one};
    const bool mine_may = process_vm_readv(board_->process[other_], &mine, 1, &theirs, 1, 0) == sizeof one;
    board_->batch_us[me_][0] = mine_may ? 1 : 0;
    meet();
    const bool both = board_->batch_us[0][0] == 1 && board_->batch_us[1][0] == 1;
    meet();
    return both;
  }

  void connect_sockets() {
    const int listener = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    if (bind(listener, reinterpret_cast<sockaddr*>(&address), sizeof address) || listen(listener, 1) ||
        getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length))
      fail("a listening socket");
    sockets_[1] = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(sockets_[1], reinterpret_cast<sockaddr*>(&address), sizeof address)) fail("connect");
    sockets_[0] = accept(listener, nullptr, nullptr);
    if (sockets_[0] < 0) fail("accept");
    close(listener);
    for (const int one : sockets_) {
      const int on = 1, buffer = 4 << 20;
      setsockopt(one, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      setsockopt(one, SOL_SOCKET, SO_SNDBUF, &buffer, sizeof buffer);
      setsockopt(one, SOL_SOCKET, SO_RCVBUF, &buffer, sizeof buffer);
      fcntl(one, F_SETFL, O_NONBLOCK);
    }
  }

  void over_sockets(size_t bytes) const {
    constexpr size_t piece = 256 << 10;
    const auto* from = reinterpret_cast<const char*>(in_);
    auto* to = reinterpret_cast<char*>(shared_[2 + me_]);
    size_t sent = 0, received = 0;
    while (sent < bytes || received < bytes) {
      if (sent < bytes)
        if (const ssize_t n = send(socket_, from + sent, std::min(bytes - sent, piece), MSG_NOSIGNAL); n > 0)
          sent += static_cast<size_t>(n);
      if (received < bytes)
        if (const ssize_t n = recv(socket_, to + received, std::min(bytes - received, piece), 0); n > 0)
          received += static_cast<size_t>(n);
    }
  }

  const std::vector<Way> plain_{Way{}}, stores_{Way{}, Way{.past_caches = true}};
  const double limit_us_;
  const size_t floats_;
  Board* board_ = nullptr;
  float* rings_[4] = {};
  float* shared_[4] = {};  // inputs of both, results of both
  int sockets_[2] = {-1, -1};
  int socket_ = -1;
  pid_t child_ = 0;
  int me_ = 0, other_ = 1;
  float *in_ = nullptr, *out_ = nullptr;
  bool met_line_ = false;
  uint64_t met_ = 0, sent_ = 0, taken_ = 0, returned_ = 0, collected_ = 0;
};

std::vector<size_t> sizes_of(char* list) {
  std::vector<size_t> sizes;
  for (const char* size = std::strtok(list, ","); size; size = std::strtok(nullptr, ","))
    sizes.push_back(std::strtoull(size, nullptr, 10));
  return sizes;
}

}  // namespace

int main(int argc, char** argv) {
  const double limit_us = argc == 4 ? std::atof(argv[3]) * 1000 : 0;
  const std::vector<size_t> sizes = argc == 4 ? sizes_of(argv[1]) : std::vector<size_t>{};
  const std::vector<size_t> copies = argc == 4 ? sizes_of(argv[2]) : std::vector<size_t>{};
  if (sizes.empty() || copies.empty() || limit_us <= 0) {
    std::fprintf(stderr, "compare: usage: limits SIZES COPIES MILLISECONDS\n");
    return 2;
  }
  Yard yard(std::max(*std::ranges::max_element(sizes), *std::ranges::max_element(copies)), limit_us);
  for (const size_t size : sizes) yard.measure(size);
  for (const size_t size : copies) yard.measure_copies(size);
  return yard.end();
}
