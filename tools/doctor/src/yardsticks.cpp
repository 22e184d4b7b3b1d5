// SPDX-License-Identifier: Apache-2.0
#include "yardsticks.hpp"

#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <functional>
#include <memory>
#include <stdexcept>
#include <thread>

namespace doctor {
namespace {

using Samples = std::vector<double>;
constexpr size_t most_samples = 4096, large = 64 << 20, slot_bytes = 64 << 10, slots = 4;

double seconds_now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void pin(uint32_t cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  sched_setaffinity(0, sizeof set, &set);  // where it is refused the scheduler places
}

// Memory of this process, or shared with children; touched, so no page fault is measured.
struct Memory {
  explicit Memory(size_t size, bool shared = false) : bytes(size) {
    void* at = mmap(nullptr, size, PROT_READ | PROT_WRITE, (shared ? MAP_SHARED : MAP_PRIVATE) | MAP_ANONYMOUS, -1, 0);
    if (at == MAP_FAILED)
      throw std::runtime_error(fmt::format("no memory for {} bytes: {}", size, std::strerror(errno)));
    data = static_cast<char*>(at);
    std::memset(data, 1, size);
  }
  ~Memory() { munmap(data, bytes); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  size_t bytes;
  char* data;
};

// Shared by two processes.
struct Board {
  alignas(128) std::atomic<uint64_t> ping{0};
  alignas(128) std::atomic<uint64_t> pong{0};
  alignas(128) std::atomic<bool> stop{false};
  char slot[slots][slot_bytes];
};

// Polls until the counter has come so far; gives the core up now and then, for where both share one. False: told to
// stop, or nothing for 20 s.
bool await(const Board& board, const std::atomic<uint64_t>& counter, uint64_t least) {
  constexpr double patience = 20;
  double end = 0;
  for (uint64_t spins = 1; counter.load(std::memory_order_acquire) < least; ++spins) {
    if (spins % 4096 != 0) continue;
    sched_yield();
    if (end == 0) end = seconds_now() + patience;
    if (board.stop.load(std::memory_order_relaxed) || seconds_now() > end) return false;
  }
  return true;
}

void require(bool served) {
  if (!served) throw std::runtime_error("the other process has stopped");
}

// At least three rounds, then until the time is over. A round gives its sample.
Samples repeat(double seconds, const std::function<double()>& round) {
  Samples samples;
  constexpr size_t least = 3;
  for (const double end = seconds_now() + seconds;
       samples.size() < least || (seconds_now() < end && samples.size() < most_samples);)
    samples.push_back(round());
  return samples;
}

// The child leaves its samples, or a problem.
struct Outcome {
  char problem[200] = {};
  size_t count = 0;
  double samples[most_samples];
};

// The child measures while this process serves it. An exception of the child is thrown here.
Samples with_child(uint32_t mine, uint32_t its, const std::function<Samples()>& child,
                   const std::function<void()>& serve) {
  const Memory memory(sizeof(Outcome), true);
  auto* outcome = new (memory.data) Outcome;
  const pid_t pid = fork();
  if (pid < 0) throw std::runtime_error(fmt::format("fork: {}", std::strerror(errno)));
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    pin(its);
    try {
      const Samples samples = child();
      std::copy(samples.begin(), samples.end(), outcome->samples);
      outcome->count = samples.size();
    } catch (const std::exception& e) {
      std::strncpy(outcome->problem, e.what(), sizeof outcome->problem - 1);
    }
    _exit(0);
  }
  cpu_set_t before;
  sched_getaffinity(0, sizeof before, &before);
  pin(mine);
  serve();
  sched_setaffinity(0, sizeof before, &before);
  waitpid(pid, nullptr, 0);
  if (outcome->count == 0)
    throw std::runtime_error(outcome->problem[0] ? outcome->problem : "the child process ended early");
  return Samples(outcome->samples, outcome->samples + outcome->count);
}

double gigabytes(size_t bytes, double begin) { return static_cast<double>(bytes) / (seconds_now() - begin) * 1e-9; }

Samples copy_one_core(double seconds) {
  const Memory from(large), to(large);
  return repeat(seconds, [&] {
    const double begin = seconds_now();
    std::memcpy(to.data, from.data, large);
    return gigabytes(large, begin);
  });
}

// A large copy by each core, within an eighth of the memory.
size_t all_cores_bytes(size_t cores) {
  constexpr size_t least = 1 << 20;
  const size_t memory = static_cast<size_t>(sysconf(_SC_PHYS_PAGES)) * static_cast<size_t>(sysconf(_SC_PAGESIZE));
  return std::clamp(memory / 16 / cores, least, large) / least * least;
}

Samples copy_all_cores(const std::vector<uint32_t>& cpus, size_t each, double seconds) {
  constexpr size_t rounds = 4;
  return repeat(seconds, [&] {
    std::atomic<size_t> ready{0};
    std::vector<double> begins(cpus.size()), ends(cpus.size());
    {
      std::vector<std::jthread> threads;
      for (size_t i = 0; i < cpus.size(); ++i)
        threads.emplace_back([&, i] {
          pin(cpus[i]);
          const Memory from(each), to(each);
          for (++ready; ready < cpus.size();) sched_yield();
          begins[i] = seconds_now();
          for (size_t k = 0; k < rounds; ++k) std::memcpy(to.data, from.data, each);
          ends[i] = seconds_now();
        });
    }
    const double begin = *std::min_element(begins.begin(), begins.end()),
                 end = *std::max_element(ends.begin(), ends.end());
    return static_cast<double>(cpus.size() * rounds * each) / (end - begin) * 1e-9;
  });
}

// One way, in ns.
Samples cache_line(uint32_t mine, uint32_t its, double seconds) {
  const Memory memory(sizeof(Board), true);
  Board& board = *new (memory.data) Board;
  constexpr uint64_t exchanges = 2000;
  uint64_t number = 0;
  const auto child = [&] {
    const Samples samples = repeat(seconds, [&] {
      const double begin = seconds_now();
      for (const uint64_t last = number + exchanges; number < last;) {
        board.ping.store(++number, std::memory_order_release);
        require(await(board, board.pong, number));
      }
      return (seconds_now() - begin) * 1e9 / (2 * exchanges);
    });
    board.stop = true;
    return samples;
  };
  return with_child(mine, its, child, [&] {
    for (uint64_t k = 1; await(board, board.ping, k); ++k) board.pong.store(k, std::memory_order_release);
  });
}

// Through slots in shared memory: one process copies in, the other out, at the same time.
Samples staged_copy(uint32_t mine, uint32_t its, double seconds) {
  const Memory memory(sizeof(Board), true), from(large), to(large);
  Board& board = *new (memory.data) Board;
  uint64_t number = 0;
  const auto child = [&] {
    const Samples samples = repeat(seconds, [&] {
      const double begin = seconds_now();
      for (size_t at = 0; at < large; at += slot_bytes) {
        require(await(board, board.ping, number + 1));
        std::memcpy(to.data + at, board.slot[number % slots], slot_bytes);
        board.pong.store(++number, std::memory_order_release);
      }
      return gigabytes(large, begin);
    });
    board.stop = true;
    return samples;
  };
  return with_child(mine, its, child, [&] {
    for (uint64_t k = 0; await(board, board.pong, k < slots ? 0 : k + 1 - slots); ++k) {
      std::memcpy(board.slot[k % slots], from.data + k * slot_bytes % large, slot_bytes);
      board.ping.store(k + 1, std::memory_order_release);
    }
  });
}

// The child copies out of the other's memory: mapped, or by the kernel.
Samples direct_copy(uint32_t mine, uint32_t its, double seconds, bool mapped) {
  const Memory from(large, mapped), to(large);
  const auto child = [&] {
    return repeat(seconds, [&] {
      const double begin = seconds_now();
      if (mapped) {
        std::memcpy(to.data, from.data, large);
        return gigabytes(large, begin);
      }
      for (size_t at = 0; at < large;) {
        const iovec local{to.data + at, large - at}, remote{from.data + at, large - at};
        const ssize_t got = process_vm_readv(getppid(), &local, 1, &remote, 1, 0);
        if (got <= 0) throw std::runtime_error(fmt::format("process_vm_readv: {}", std::strerror(errno)));
        at += static_cast<size_t>(got);
      }
      return gigabytes(large, begin);
    });
  };
  return with_child(mine, its, child, [] {});
}

// Polls, as ranks do.
void all_bytes(int fd, char* data, size_t bytes, bool sends) {
  for (size_t done = 0, idle = 0; done < bytes;) {
    const ssize_t n = sends ? send(fd, data + done, bytes - done, MSG_NOSIGNAL | MSG_DONTWAIT)
                            : recv(fd, data + done, bytes - done, MSG_DONTWAIT);
    if (n < 0 && errno == EAGAIN) {
      if (++idle % 64 == 0) sched_yield();
      continue;
    }
    if (n <= 0) throw std::runtime_error("the loopback connection ended");
    done += static_cast<size_t>(n);
  }
}

std::pair<int, int> loopback_pair() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0),
            client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* at = reinterpret_cast<sockaddr*>(&address);
  if (bind(listener, at, size) != 0 || listen(listener, 1) != 0 || getsockname(listener, at, &size) != 0 ||
      connect(client, at, size) != 0)
    throw std::runtime_error(fmt::format("loopback: {}", std::strerror(errno)));
  const int server = accept(listener, nullptr, nullptr);
  close(listener);
  const int one = 1;
  for (const int fd : {client, server}) setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
  return {client, server};
}

// Messages of so many bytes there, and one byte (or as many) back.
Samples tcp(uint32_t mine, uint32_t its, double seconds, size_t bytes, bool echoes) {
  const auto [client, server] = loopback_pair();
  const Memory buffer(bytes);
  const size_t back = echoes ? bytes : 1, rounds = echoes ? 500 : 1;
  const auto child = [&, client = client, server = server] {
    close(server);
    return repeat(seconds, [&] {
      const double begin = seconds_now();
      for (size_t k = 0; k < rounds; ++k) {
        all_bytes(client, buffer.data, bytes, true);
        all_bytes(client, buffer.data, back, false);
      }
      return echoes ? (seconds_now() - begin) * 1e6 / static_cast<double>(2 * rounds) : gigabytes(bytes, begin);
    });
  };
  return with_child(mine, its, child, [&, client = client, server = server] {
    close(client);
    try {
      for (;;) {
        all_bytes(server, buffer.data, bytes, false);
        all_bytes(server, buffer.data, back, true);
      }
    } catch (const std::runtime_error&) {  // the child is done
      close(server);
    }
  });
}

Figure take(const char* name, const char* unit, const std::string& meaning, const std::function<Samples()>& samples) {
  Figure figure{name, unit, meaning};
  try {
    figure.samples = samples();
  } catch (const std::exception& e) {
    figure.problem = e.what();
  }
  return figure;
}

// The exchange of a line with the nearest and with the farthest core; of many cores some.
void exchange_lines(const std::vector<uint32_t>& cpus, double seconds, std::vector<Figure>& out) {
  constexpr size_t most = 32;
  const size_t step = (cpus.size() + most - 1) / most;
  const double share = seconds / static_cast<double>((cpus.size() + step - 1) / step);
  std::vector<Figure> all;
  for (size_t i = 1; i < cpus.size(); i += step)
    all.push_back(take("", "ns", "", [&] { return cache_line(cpus[0], cpus[i], share); }));
  std::erase_if(all, [](const Figure& figure) { return figure.samples.empty(); });
  std::sort(all.begin(), all.end(), [](const Figure& a, const Figure& b) { return a.median() < b.median(); });
  const auto of = [&](size_t index) {
    if (all.empty()) throw std::runtime_error("no second core, or it does not answer");
    return all[index].samples;
  };
  out.push_back(take("cache_line_near", "ns", "a cache line to the nearest other core", [&] { return of(0); }));
  out.push_back(take("cache_line_far", "ns", "a cache line to the farthest core", [&] { return of(all.size() - 1); }));
}

}  // namespace

double Figure::best() const {
  return more_is_better() ? *std::max_element(samples.begin(), samples.end())
                          : *std::min_element(samples.begin(), samples.end());
}

double Figure::median() const {
  std::vector<double> sorted = samples;
  std::nth_element(sorted.begin(), sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2), sorted.end());
  return sorted[sorted.size() / 2];
}

std::vector<Figure> measure(const std::vector<uint32_t>& cpus, double seconds) {
  if (cpus.empty()) throw std::runtime_error("the cores of this process are unknown");
  const uint32_t a = cpus[0], b = cpus.size() > 1 ? cpus[1] : cpus[0];
  const size_t each = all_cores_bytes(cpus.size());
  std::vector<Figure> all;
  const auto add = [&](const char* name, const char* unit, const std::string& meaning,
                       const std::function<Samples()>& samples) { all.push_back(take(name, unit, meaning, samples)); };
  add("memory_copy_core", "GB/s", "memcpy of 64 MiB by one core", [&] { return copy_one_core(seconds); });
  exchange_lines(cpus, seconds, all);
  add("process_staged_copy", "GB/s", "between processes through shared slots of 64 KiB (two copies)",
      [&] { return staged_copy(a, b, seconds); });
  add("process_mapped_copy", "GB/s", "out of memory that another process shares (one copy)",
      [&] { return direct_copy(a, b, seconds, true); });
  add("process_vm_readv", "GB/s", "out of another process's own memory, by the kernel",
      [&] { return direct_copy(a, b, seconds, false); });
  add("tcp_loopback_latency", "us", "8 bytes one way over loopback TCP, polled",
      [&] { return tcp(a, b, seconds, 8, true); });
  add("tcp_loopback_bandwidth", "GB/s", "4 MiB messages one way over loopback TCP",
      [&] { return tcp(a, b, seconds, 4 << 20, false); });
  add("memory_copy_all", "GB/s", fmt::format("memcpy by all cores at once, {} MiB each", each >> 20),
      [&] { return copy_all_cores(cpus, each, seconds); });
  return all;
}

}  // namespace doctor
