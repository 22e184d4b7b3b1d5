// SPDX-License-Identifier: Apache-2.0
//
// The machine's limits: hand-written exchanges of two pinned processes, which know each other's memory and do
// nothing but the work. No library can be faster by much.
//
// usage: limits SIZES MILLISECONDS
//
// One line of JSON for each yardstick and size, with the times of seven batches of calls:
//
//   line      a cache line there and back, once: the limit of the smallest messages
//   staged    all_reduce of private memory through slots in shared memory
//   mapped    all_reduce of memory that both processes map: each reduces a half into both results
//   direct    all_reduce of private memory by process_vm_readv
//   fetch     each process copies as many bytes out of the other's memory, which both map
//   fetch_direct   the same by process_vm_readv
//   sockets   as many bytes both ways over a TCP connection on the loopback interface, busy polled
//
// Where the processor has stores that pass the caches by, `staged`, `mapped` and `fetch` are measured with and without
// them; the faster is printed.
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
#include <array>
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

#include "loop.h"

namespace {

constexpr int batches = 7;
constexpr size_t slots = 4, slot_bytes = 64 << 10;
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
    for (auto& ring : rings_) ring = static_cast<float*>(map_shared(slots * slot_bytes));
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

  void measure(size_t bytes) {
    const size_t n = std::max<size_t>(bytes / sizeof(float), 2);
    if (!met_line_)
      faster(
          "line", 2, [this](bool) { meet(), meet(); }, false);
    met_line_ = true;
    faster(
        "staged", n, [this, n](bool past) { staged(n, past); }, true);
    require(out_[0] == 3 && out_[n - 1] == 3, "staged: wrong result");
    faster(
        "mapped", n, [this, n](bool past) { mapped(n, past); }, true);
    require(shared_[2 + me_][0] == 3 && shared_[2 + me_][n - 1] == 3, "mapped: wrong result");
    faster(
        "fetch", n, [this, n](bool past) { meet(), combine(out_, nullptr, shared_[other_], nullptr, n, past), meet(); },
        true);
    if (may_read()) {
      faster(
          "direct", n, [this, n](bool) { direct(n); }, false);
      require(out_[0] == 3 && out_[n - 1] == 3, "direct: wrong result");
      faster(
          "fetch_direct", n, [this, n](bool) { meet(), read(out_, board_->in[other_], n), meet(); }, false);
    }
    faster(
        "sockets", n, [this, n](bool) { over_sockets(n * sizeof(float)); }, false);
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

  void meet() {
    ++met_;
    board_->arrived[me_].value.store(met_, std::memory_order_release);
    board_->arrived[other_].await(met_);
  }

  // Times the body with each kind of stores, and prints the faster one's batches.
  void faster(const char* name, size_t n, const std::function<void(bool)>& body, bool stores) {
    std::array<std::array<float, batches>, 2> times;
    for (int past = 0; past <= (stores ? 1 : 0); ++past) times[past] = batches_of([&] { body(past == 1); });
    if (me_) return;
    const auto median = [](std::array<float, batches> all) {
      std::ranges::sort(all);
      return all[batches / 2];
    };
    const auto& best = stores && median(times[1]) < median(times[0]) ? times[1] : times[0];
    std::printf("{\"yardstick\": \"%s\", \"bytes\": %zu, \"us\": [", name, n * sizeof(float));
    for (int i = 0; i < batches; ++i) std::printf("%s%.4g", i ? ", " : "", static_cast<double>(best[i]));
    std::printf("]}\n");
    std::fflush(stdout);
  }

  template <typename Body>
  std::array<float, batches> batches_of(Body&& body) {
    using Clock = std::chrono::steady_clock;
    const auto us = [](Clock::duration time) { return std::chrono::duration<double, std::micro>(time).count(); };
    body();
    meet();
    auto begin = Clock::now();
    for (int i = 0; i < 3; ++i) body();
    const double estimate = us(Clock::now() - begin) / 3;
    if (!me_)
      board_->calls.store(static_cast<uint64_t>(std::clamp(limit_us_ / batches / std::max(estimate, 0.01), 1.0, 1e6)));
    meet();
    const uint64_t calls = board_->calls.load();
    for (int batch = 0; batch < batches; ++batch) {
      meet();
      begin = Clock::now();
      for (uint64_t i = 0; i < calls; ++i) body();
      board_->batch_us[me_][batch] = static_cast<float>(us(Clock::now() - begin) / static_cast<double>(calls));
    }
    meet();
    std::array<float, batches> longest;
    for (int batch = 0; batch < batches; ++batch)
      longest[batch] = std::max(board_->batch_us[0][batch], board_->batch_us[1][batch]);
    meet();
    return longest;
  }

  // Each reduces its half. Slices of the peer's half travel to it in slots of one ring, results come back in another's.
  void staged(size_t n, bool past) {
    const size_t half = n / 2, in_slot = slot_bytes / sizeof(float);
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

}  // namespace

int main(int argc, char** argv) {
  const double limit_us = argc == 3 ? std::atof(argv[2]) * 1000 : 0;
  std::vector<size_t> sizes;
  for (const char* size = argc == 3 ? std::strtok(argv[1], ",") : nullptr; size; size = std::strtok(nullptr, ","))
    sizes.push_back(std::strtoull(size, nullptr, 10));
  if (sizes.empty() || limit_us <= 0) {
    std::fprintf(stderr, "compare: usage: limits SIZES MILLISECONDS\n");
    return 2;
  }
  Yard yard(*std::ranges::max_element(sizes), limit_us);
  for (const size_t size : sizes) yard.measure(size);
  return yard.end();
}
