// SPDX-License-Identifier: Apache-2.0
//
// Two processes pinned to two processors: what the transport costs above the machine's own limits, all in one run
// because only ratios within one run count. Prints, as the best of many short repetitions (others may use the machine):
//   the exchange of one bare cache line (the limit of a small message), 8 bytes by view, 8 bytes by post and progress;
//   the overhead of each view function without a peer in the way;
//   bare streaming of 64 KiB blocks through shared memory (ordinary and non-temporal stores), the same by view, by
//   post, and by reference (send_region); messages of several sizes written in three ways, by which
//   TUTTI_SHM_STREAM_BYTES is chosen.
// usage: shm_bench [processor 0] [processor 1]
#include <sched.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <tutti/plugin/entry.h>
#include <tutti/plugin/transport.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <tutti/sdk/local/nontemporal.hpp>
#include <vector>

extern "C" const tutti_plugin_entry_table tutti_plugin_entry_shm;

namespace {

constexpr uint64_t kBlock = 64 << 10;
constexpr int kRepetitions = 60;

struct Board {
  char letter[2][1024];  // the one pair message to each rank
  std::atomic<uint64_t> letter_bytes[2];
  alignas(128) std::atomic<uint64_t> line[2];
  alignas(128) std::atomic<uint64_t> meet[2];
  alignas(128) std::atomic<uint64_t> produced;
  alignas(128) std::atomic<uint64_t> consumed;
  alignas(4096) uint8_t blocks[4][kBlock];
};

struct Pair {
  Board* board;
  int rank;
  const tutti_transport* t;
  const tutti_view* v;
  tutti_domain* domain = nullptr;
  tutti_endpoint* endpoint = nullptr;
  tutti_link* link = nullptr;
  tutti_pair_messages pair{};
  uint64_t round = 0;

  void meet() {
    board->meet[rank].store(++round);
    while (board->meet[1 - rank].load() < round) {
    }
  }
};

[[noreturn]] void die(const char* what) {
  std::fprintf(stderr, "shm_bench: %s failed\n", what);
  std::exit(1);
}

const char* no_setting(void*, const char* key) { return std::getenv(key); }
void print_error(void*, tutti_status, const char* text) { std::fprintf(stderr, "shm_bench: %s\n", text); }

void open(Pair& p) {
  static tutti_host host{};
  host.struct_size = sizeof host;
  host.get_config = no_setting;
  host.set_error = print_error;
  tutti_plugin_entry_shm.init(&host);
  p.t = static_cast<const tutti_transport*>(tutti_plugin_entry_shm.get_interface(TUTTI_TRANSPORT_ID, 0));
  p.v = static_cast<const tutti_view*>(p.t->get_interface(p.t->self, TUTTI_VIEW_ID));
  tutti_domain_config domain{};
  domain.struct_size = sizeof domain;
  if (p.t->open_domain(p.t->self, &domain, &p.domain) != TUTTI_OK) die("open_domain");
  p.pair = {sizeof p.pair, 0, p.board, [](void* self, uint32_t peer, const void* data, uint64_t bytes) -> tutti_status {
              auto& board = *static_cast<Board*>(self);
              if (bytes > sizeof board.letter[peer] || board.letter_bytes[peer].load() != 0) die("a pair message");
              std::memcpy(board.letter[peer], data, bytes);
              board.letter_bytes[peer].store(bytes);
              return TUTTI_OK;
            }};
  tutti_endpoint_config config{};
  config.struct_size = sizeof config;
  config.rank = static_cast<uint32_t>(p.rank);
  config.nranks = 2;
  config.lanes = 8;
  config.name = "bench";
  config.pair = &p.pair;
  if (p.t->open_endpoint(p.domain, &config, &p.endpoint) != TUTTI_OK) die("open_endpoint");
  const auto peer = static_cast<uint32_t>(1 - p.rank);
  for (bool told = false;;) {
    const uint64_t bytes = told ? 0 : p.board->letter_bytes[p.rank].load();
    if (bytes > 0) {
      told = true;
      if (p.t->receive_pair(p.endpoint, peer, p.board->letter[p.rank], bytes) != TUTTI_OK) die("receive_pair");
    }
    const tutti_status status = p.t->connect(p.endpoint, peer, &p.link);
    if (status == TUTTI_OK) break;
    if (status != TUTTI_AGAIN) die("connect");
    tutti_completion c[4];
    uint32_t n;
    p.t->progress(p.endpoint, c, 4, &n);
  }
  p.meet();
}

// The least seconds per iteration over the repetitions, measured at rank 0.
double seconds(Pair& p, uint64_t iterations, const std::function<void(uint64_t)>& body) {
  std::vector<double> samples;
  for (int i = 0; i < kRepetitions; i++) {
    p.meet();
    const auto start = std::chrono::steady_clock::now();
    body(iterations);
    p.meet();
    samples.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() /
                      static_cast<double>(iterations));
  }
  return *std::min_element(samples.begin(), samples.end());
}

void line_ping(Pair& p, uint64_t n) {
  static uint64_t sequence = 0;
  for (uint64_t i = 0; i < n; i++) {
    sequence++;
    if (p.rank == 0) p.board->line[0].store(sequence, std::memory_order_release);
    while (p.board->line[1 - p.rank].load(std::memory_order_acquire) < sequence) {
    }
    if (p.rank == 1) p.board->line[1].store(sequence, std::memory_order_release);
  }
}

void view_send(Pair& p, uint64_t value) {
  void* room;
  while (!(room = p.v->try_reserve(p.link, 0, 8))) {
  }
  std::memcpy(room, &value, 8);
  p.v->commit(p.link, 0, 8);
}
void view_receive(Pair& p, uint64_t value) {
  uint64_t bytes, got;
  const void* message;
  while (!(message = p.v->try_receive(p.link, 0, &bytes))) {
  }
  std::memcpy(&got, message, 8);
  p.v->release(p.link, 0);
  if (got != value) die("an 8 byte message's check");
}
void view_ping(Pair& p, uint64_t n) {
  for (uint64_t i = 0; i < n; i++) {
    if (p.rank == 0) view_send(p, i);
    view_receive(p, i);
    if (p.rank == 1) view_send(p, i);
  }
}

tutti_transfer transfer(Pair& p, uint16_t kind, void* data, uint64_t bytes, uint16_t flags) {
  tutti_transfer x{};
  x.link = p.link;
  x.lane = 1;
  x.kind = kind;
  x.flags = flags;
  x.data = data;
  x.bytes = bytes;
  return x;
}
void must_post(Pair& p, const tutti_transfer& x) {
  tutti_status status;
  while ((status = p.t->post(p.endpoint, &x)) == TUTTI_AGAIN) {
    tutti_completion c[8];
    uint32_t n;
    p.t->progress(p.endpoint, c, 8, &n);
  }
  if (status != TUTTI_OK) die("post");
}
void wait_one(Pair& p) {
  tutti_completion c[1];
  uint32_t n = 0;
  while (n == 0)
    if (p.t->progress(p.endpoint, c, 1, &n) != TUTTI_OK) die("progress");
  if (c[0].status != TUTTI_OK) die("a transfer");
}
void post_ping(Pair& p, uint64_t n) {
  uint64_t out = 0, in = 0;
  for (uint64_t i = 0; i < n; i++) {
    out = i;
    const auto send = transfer(p, TUTTI_TRANSFER_SEND, &out, 8, TUTTI_TRANSFER_INLINE);
    const auto receive = transfer(p, TUTTI_TRANSFER_RECV, &in, 8, 0);
    if (p.rank == 0) must_post(p, send);
    must_post(p, receive);
    wait_one(p);
    if (in != i) die("an 8 byte message's check");
    if (p.rank == 1) must_post(p, send);
  }
}

// One way from rank 0 to rank 1; the receiver reads each block into private memory.
void bare_stream(Pair& p, uint64_t n, bool nontemporal, uint8_t* mine) {
  Board& b = *p.board;
  const uint64_t start = b.consumed.load();
  p.meet();
  for (uint64_t i = start; i < start + n; i++) {
    if (p.rank == 0) {
      while (i - b.consumed.load(std::memory_order_acquire) >= 4) {
      }
      if (nontemporal)
        tutti::sdk::local::stream_copy(b.blocks[i % 4], mine, kBlock), tutti::sdk::local::order_stores();
      else
        std::memcpy(b.blocks[i % 4], mine, kBlock);
      b.produced.store(i + 1, std::memory_order_release);
    } else {
      while (b.produced.load(std::memory_order_acquire) <= i) {
      }
      std::memcpy(mine, b.blocks[i % 4], kBlock);
      b.consumed.store(i + 1, std::memory_order_release);
    }
  }
}
void view_stream(Pair& p, uint64_t n, bool nontemporal, uint8_t* mine) {
  for (uint64_t i = 0; i < n; i++) {
    if (p.rank == 0) {
      void* room;
      while (!(room = p.v->try_reserve(p.link, 2, kBlock))) {
      }
      if (nontemporal)
        tutti::sdk::local::stream_copy(static_cast<uint8_t*>(room), mine, kBlock);
      else
        std::memcpy(room, mine, kBlock);
      p.v->commit(p.link, 2, kBlock);
    } else {
      uint64_t bytes;
      const void* message;
      while (!(message = p.v->try_receive(p.link, 2, &bytes))) {
      }
      std::memcpy(mine, message, bytes);
      p.v->release(p.link, 2);
    }
  }
}
void post_stream(Pair& p, uint64_t n, uint64_t size, uint8_t* mine) {
  const auto x = transfer(p, p.rank == 0 ? TUTTI_TRANSFER_SEND : TUTTI_TRANSFER_RECV, mine, size, 0);
  uint64_t posted = 0, done = 0;
  while (done < n) {
    while (posted < n && posted - done < 16) must_post(p, x), posted++;
    wait_one(p);
    done++;
  }
}
void region_stream(Pair& p, uint64_t n, tutti_region* region, uint8_t* mine) {
  uint64_t ticket = 0;
  for (uint64_t i = 0; i < n; i++) {
    if (p.rank == 0) {
      while (p.v->send_region(p.link, 3, region, i % 4 * kBlock, kBlock, &ticket) == TUTTI_AGAIN) {
      }
    } else {
      uint64_t bytes;
      const void* message;
      while (!(message = p.v->try_receive(p.link, 3, &bytes))) {
      }
      std::memcpy(mine, message, bytes);
      p.v->release(p.link, 3);
    }
  }
  while (p.rank == 0 && p.v->released(p.link, 3) <= ticket) {
  }
}

void latency(Pair& p) {
  const double bare = seconds(p, 5'000, [&](uint64_t n) { line_ping(p, n); }) / 2 * 1e9;
  const double by_view = seconds(p, 5'000, [&](uint64_t n) { view_ping(p, n); }) / 2 * 1e9;
  const double by_post = seconds(p, 5'000, [&](uint64_t n) { post_ping(p, n); }) / 2 * 1e9;
  uint64_t bytes;
  const double poll = seconds(p, 100'000,
                              [&](uint64_t n) {
                                for (uint64_t i = 0; i < n; i++)
                                  if (p.v->try_receive(p.link, 5, &bytes)) die("an empty lane");
                              }) *
                      1e9;
  const double idle = seconds(p, 100'000,
                              [&](uint64_t n) {
                                tutti_completion c[4];
                                uint32_t got;
                                for (uint64_t i = 0; i < n; i++) p.t->progress(p.endpoint, c, 4, &got);
                              }) *
                      1e9;
  if (p.rank != 0) return;
  std::printf("8 bytes, one way         ns    / bare\n");
  std::printf("  bare cache line     %6.1f     1.00\n", bare);
  std::printf("  view                %6.1f     %4.2f\n", by_view, by_view / bare);
  std::printf("  post and progress   %6.1f     %4.2f\n", by_post, by_post / bare);
  std::printf("  a poll of an empty lane %.1f ns, an idle progress %.1f ns\n", poll, idle);
}

void bandwidth(Pair& p) {
  // A source and target larger than a slot, so that the private side is in the second-level cache at best.
  std::vector<uint8_t> memory(2 * kBlock, 1);
  uint8_t* mine = memory.data();
  const int fd = memfd_create("bench", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0 || ftruncate(fd, 4 * kBlock) != 0) die("memfd_create");
  void* mapped = mmap(nullptr, 4 * kBlock, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  std::memset(mapped, 1, 4 * kBlock);
  tutti_memory description{sizeof description, TUTTI_MEMORY_HOST, mapped, 4 * kBlock, fd, 0, 0};
  tutti_region* region;
  if (p.t->register_memory(p.domain, &description, &region) != TUTTI_OK) die("register_memory");
  struct Row {
    const char* name;
    std::function<void(uint64_t)> body;
  };
  const Row rows[] = {{"bare, ordinary stores", [&](uint64_t n) { bare_stream(p, n, false, mine); }},
                      {"bare, non-temporal", [&](uint64_t n) { bare_stream(p, n, true, mine); }},
                      {"view, ordinary stores", [&](uint64_t n) { view_stream(p, n, false, mine); }},
                      {"view, non-temporal", [&](uint64_t n) { view_stream(p, n, true, mine); }},
                      {"post and progress", [&](uint64_t n) { post_stream(p, n, kBlock, mine); }},
                      {"send_region", [&](uint64_t n) { region_stream(p, n, region, mine); }}};
  double bare = 0;
  if (p.rank == 0) std::printf("64 KiB blocks, one way  GB/s   / bare non-temporal\n");
  for (const Row& row : rows) {
    const double rate = static_cast<double>(kBlock) / seconds(p, 100, row.body) / 1e9;
    if (&row == &rows[1]) bare = rate;
    if (p.rank == 0 && bare == 0) std::printf("  %-22s %5.2f\n", row.name, rate);
    if (p.rank == 0 && bare != 0) std::printf("  %-22s %5.2f   %4.2f\n", row.name, rate, rate / bare);
  }
  p.t->deregister_memory(p.domain, region);
  munmap(mapped, 4 * kBlock);
  close(fd);
}

// An ordinary store for each 16 bytes, as compiled kernels do it; memcpy uses string instructions for large blocks.
void store_loop(uint8_t* to, const uint8_t* from, uint64_t size) {
  using Vector = long long __attribute__((vector_size(16), may_alias));
  for (uint64_t i = 0; i + 16 <= size; i += 16)
    *reinterpret_cast<volatile Vector*>(to + i) = *reinterpret_cast<const Vector*>(from + i);
}

void sizes(Pair& p) {
  std::vector<uint8_t> memory(kBlock, 1);
  uint8_t* mine = memory.data();
  struct Copy {
    const char* name;
    void (*copy)(uint8_t*, const uint8_t*, uint64_t);
  };
  const Copy copies[] = {{"memcpy", [](uint8_t* to, const uint8_t* from, uint64_t n) { std::memcpy(to, from, n); }},
                         {"store loop", store_loop},
                         {"non-temporal", tutti::sdk::local::stream_copy}};
  for (const Copy& copy : copies) {
    if (p.rank == 0) std::printf("ns per message by view, %-12s", copy.name);
    for (const uint64_t size : {64, 128, 256, 512, 1024, 2048, 4096, 16384, 65536}) {
      const double each = seconds(p, 400, [&](uint64_t n) {
        for (uint64_t i = 0; i < n; i++) {
          uint64_t bytes;
          const void* message;
          void* room;
          if (p.rank == 0) {
            while (!(room = p.v->try_reserve(p.link, 4, size))) {
            }
            copy.copy(static_cast<uint8_t*>(room), mine, size);
            p.v->commit(p.link, 4, size);
          } else {
            while (!(message = p.v->try_receive(p.link, 4, &bytes))) {
            }
            std::memcpy(mine, message, bytes);
            p.v->release(p.link, 4);
          }
        }
      });
      if (p.rank == 0) std::printf(" %zu: %.0f", static_cast<size_t>(size), each * 1e9);
    }
    if (p.rank == 0) std::printf("\n");
  }
}

}  // namespace

int main(int argc, char** argv) {
  auto* board =
      static_cast<Board*>(mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  const int processors[2] = {argc > 1 ? std::atoi(argv[1]) : 0, argc > 2 ? std::atoi(argv[2]) : 1};
  const pid_t child = fork();
  Pair p{};
  p.board = board;
  p.rank = child == 0 ? 1 : 0;
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(static_cast<size_t>(processors[p.rank]), &set);
  if (sched_setaffinity(0, sizeof set, &set) != 0) die("sched_setaffinity");
  open(p);
  latency(p);
  bandwidth(p);
  sizes(p);
  p.meet();
  p.t->close_endpoint(p.endpoint);
  p.t->close_domain(p.domain);
  if (child != 0) waitpid(child, nullptr, 0);
}
