// SPDX-License-Identifier: Apache-2.0
//
// Opening and closing, again and again.
#include <dirent.h>
#include <malloc.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "contract_case.hpp"

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr bool sanitized = true;  // their allocators keep freed memory and their threads come and go
#else
constexpr bool sanitized = false;
#endif

namespace tutti::conformance::contract {
namespace {

uint64_t entries(const char* folder) {
  DIR* dir = opendir(folder);
  uint64_t n = 0;
  while (dir && readdir(dir)) ++n;
  if (dir) closedir(dir);
  return n;
}

struct Usage {
  uint64_t descriptors, threads, mapped, heap;
};

Usage usage() {
  Usage u{entries("/proc/self/fd"), entries("/proc/self/task"), 0, 0};
  std::ifstream("/proc/self/statm") >> u.mapped;
  u.mapped *= 4096;
  const struct mallinfo2 heap = mallinfo2();
  u.heap = heap.uordblks + heap.hblkhd;
  return u;
}

// Two ranks come, connect, exchange something, leave something pending and go.
void one_life(Bench& bench, uint32_t turn) {
  Stage stage(bench);
  for (auto& rank : stage.ranks) rank->failures_expected = true;
  uint64_t words[2] = {turn, 0};
  Posted *send = nullptr, *receive = nullptr;
  stage.until(
      [&] {
        if (!receive) receive = stage[1].post(stage[1].receive(0, 0, &words[1], 8));
        if (!send) send = stage[0].post(stage[0].send(1, 0, &words[0], 8));
        return send && receive && send->done && receive->done;
      },
      "T-3", fmt::format("the {}. pair of endpoints exchanges no message", turn + 1));
  require(words[1] == turn, "T-15", "the {}. pair of endpoints: got {} instead of {}", turn + 1, words[1], turn);
  stage[0].send_control(1, "bye");
  if (turn % 3 == 0) stage[1].post(stage[1].receive(0, 1, &words[1], 8));
  if (turn % 5 == 0) stage[0].fail_peer(1);
  if (turn % 7 == 0) stage[1].abort();
  if (TUTTI_HAS(tutti_transport, bench.transport(), register_memory)) {
    const tutti_transport* t = bench.transport();
    tutti_memory memory{sizeof memory, TUTTI_MEMORY_HOST, words, sizeof words, -1, 0, 0};
    tutti_region* region = nullptr;
    call("register_memory", true, [&] { return t->register_memory(stage[0].domain, &memory, &region); });
    if (region) call("deregister_memory", true, [&] { return t->deregister_memory(stage[0].domain, region); });
  }
}

void open_and_close(Bench& bench, uint32_t warm_up, uint32_t lives) {
  for (uint32_t i = 0; i < warm_up; ++i) one_life(bench, i);
  const Usage before = usage();
  for (uint32_t i = 0; i < lives; ++i) one_life(bench, i);
  Usage after = usage();
  for (int wait = 0; wait < 40 && after.threads > before.threads;
       ++wait) {  // a thread that was joined may still be seen
    std::this_thread::sleep_for(std::chrono::milliseconds(25));
    after = usage();
  }
  require(after.descriptors <= before.descriptors, "T-2",
          "after {} times opening, using and closing two endpoints {} descriptors are open, {} were before: {:.1f} "
          "each time "
          "(/proc/self/fd)",
          lives, after.descriptors, before.descriptors, double(after.descriptors - before.descriptors) / lives);
  if (sanitized) return;
  require(after.threads <= before.threads, "T-2",
          "after {} times opening, using and closing two endpoints {} threads run, {} did before", lives, after.threads,
          before.threads);
  // The suite's own memory of past calls and the allocator's rounding are well below this.
  const uint64_t slack = 64 * 1024 + lives * 8;
  require(after.heap <= before.heap + slack, "T-2",
          "after {} times opening, using and closing two endpoints {} bytes of heap are in use, {} were before: {:.0f} "
          "each "
          "time",
          lives, after.heap, before.heap, double(after.heap - before.heap) / lives);
  const uint64_t mapped_slack = (uint64_t{8} << 20) + lives * 512;
  require(
      after.mapped <= before.mapped + mapped_slack, "T-2",
      "after {} times opening, using and closing two endpoints {} bytes are mapped, {} were before: {:.0f} each time",
      lives, after.mapped, before.mapped, double(after.mapped - before.mapped) / lives);
}

void hundred_lives(Bench& bench) { open_and_close(bench, 300, 100); }
void thousand_lives(Bench& bench) { open_and_close(bench, 300, 1000); }

}  // namespace

std::vector<ContractCase> lifetime_cases() {
  return {
      {"open-and-close", "100 lives of two endpoints", {"T-2", "T-3", "T-15", "T-20"}, 150, hundred_lives},
      {"open-and-close-1000", "1,000 lives of two endpoints", {"T-2", "T-3", "T-15", "T-20"}, 600, thousand_lives},
  };
}

}  // namespace tutti::conformance::contract
