// SPDX-License-Identifier: Apache-2.0
//
//   limits [--threads N]... [--processes N]...
//
// For each job: N ranks over shared memory meet, pass a barrier, do an all-reduce, whose result is checked, and end.
// Prints a row of docs/reliability.md's table: what a rank holds after each step. A job fails when it takes more than
// 60 s, or when a rank holds more than the table's note allows; connections must come about on first use: none when the
// communicator is made, along the edges of a tree with a barrier by trees.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <bit>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <thread>
#include <tutti/tutti.hpp>
#include <vector>

#include "cost.hpp"

namespace limits {
namespace {

constexpr double kMostSeconds = 60;
constexpr uint64_t kCount = 1024;
constexpr uint64_t kNanoseconds = 1'000'000'000;

// The resources added by the end of each step.
struct Costs {
  Cost made, barrier, all_reduce;
};

tutti_comm_config config_of(const std::string& place, uint32_t rank, uint32_t nranks) {
  tutti_comm_config config{sizeof(tutti_comm_config)};
  config.rendezvous = place.c_str();
  config.rank = rank;
  config.nranks = nranks;
  config.transports = "shm";
  config.algorithms = "barrier:tree;all_reduce:tree,doubling";
  config.connect_timeout_ns = config.timeout_ns = 60 * kNanoseconds;
  return config;
}

// A rank's whole life. `pause` returns when all ranks have come as far; one rank of a process measures.
template <typename Pause>
Costs live(const std::string& place, uint32_t rank, uint32_t nranks, bool measures, Pause&& pause) {
  const Cost before = measures ? cost_of_process() : Cost{};
  pause();
  Costs costs;
  const auto measure = [&](Cost& cost) {
    pause();
    if (measures) cost = cost_of_process() - before;
    pause();
  };
  tutti::Communicator comm(config_of(place, rank, nranks));
  measure(costs.made);
  comm.barrier();
  measure(costs.barrier);
  std::vector<float> in(kCount, static_cast<float>(rank % 8)), out(kCount);
  comm.all_reduce<float>(in, out, tutti::Op::sum);
  measure(costs.all_reduce);
  float expected = 0;
  for (uint32_t r = 0; r < nranks; ++r) expected += static_cast<float>(r % 8);
  for (const float value : out)
    if (value != expected)
      throw std::runtime_error("rank " + std::to_string(rank) + " got " + std::to_string(value) + ", expected " +
                               std::to_string(expected));
  return costs;
}

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "limits: %s\n", what);
  std::_Exit(1);
}

// Sums over all ranks.
Costs run_threads(uint32_t nranks) {
  Costs of_all;
  std::barrier pause(nranks);
  const std::string place = "local:limits-" + std::to_string(nranks);
  std::vector<std::thread> threads;
  for (uint32_t rank = 0; rank < nranks; ++rank)
    threads.emplace_back([&, rank] {
      try {
        const Costs costs = live(place, rank, nranks, rank == 0, [&] { pause.arrive_and_wait(); });
        if (rank == 0) of_all = costs;  // the process's
      } catch (const std::exception& e) {
        give_up(e.what());  // the others could not get past `pause`
      }
    });
  for (std::thread& thread : threads) thread.join();
  return of_all;
}

Costs run_processes(uint32_t nranks) {
  std::string folder = (std::filesystem::temp_directory_path() / "tutti-limits-XXXXXX").string();
  if (!::mkdtemp(folder.data())) give_up("cannot make a folder for the meeting");
  int pipe[2];
  if (::pipe(pipe) != 0) give_up("no pipe");
  void* shared = ::mmap(nullptr, sizeof(pthread_barrier_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) give_up("no shared page");
  auto* const pause = static_cast<pthread_barrier_t*>(shared);
  pthread_barrierattr_t attributes;
  pthread_barrierattr_init(&attributes);
  pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_barrier_init(pause, &attributes, nranks);
  std::fflush(stdout);
  for (uint32_t rank = 0; rank < nranks; ++rank)
    if (::fork() == 0) {
      ::alarm(120);  // ends those that wait for a rank that gave up
      try {
        const Costs costs = live("file:" + folder, rank, nranks, true, [&] { pthread_barrier_wait(pause); });
        std::_Exit(::write(pipe[1], &costs, sizeof costs) == sizeof costs ? 0 : 1);
      } catch (const std::exception& e) {
        give_up(e.what());
      }
    }
  ::close(pipe[1]);
  Costs sum, one;
  uint32_t reported = 0;
  const auto add = [](Cost& to, const Cost& cost) {
    to.descriptors += cost.descriptors;
    to.kib += cost.kib;
  };
  for (; ::read(pipe[0], &one, sizeof one) == sizeof one; ++reported) {
    add(sum.made, one.made);
    add(sum.barrier, one.barrier);
    add(sum.all_reduce, one.all_reduce);
  }
  ::close(pipe[0]);
  while (::wait(nullptr) > 0) {
  }
  ::munmap(shared, sizeof(pthread_barrier_t));
  std::filesystem::remove_all(folder);
  if (reported != nranks) give_up("a rank did not get to its end");
  return sum;
}

bool run(bool threads, uint32_t nranks) {
  const auto start = std::chrono::steady_clock::now();
  const Costs all = threads ? run_threads(nranks) : run_processes(nranks);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  const auto each = [&](uint64_t sum) { return static_cast<double>(sum) / nranks; };
  std::printf("| %u %s | %.1f | %.1f | %.1f | %.1f | %.2f | %.2f |\n", nranks, threads ? "threads" : "processes",
              seconds, each(all.made.descriptors), each(all.barrier.descriptors), each(all.all_reduce.descriptors),
              each(all.made.kib) / 1024, each(all.all_reduce.kib) / 1024);
  std::fflush(stdout);

  bool good = true;
  const auto expect = [&](bool holds, const char* what) {
    if (!holds) std::fprintf(stderr, "limits: %u %s: %s\n", nranks, threads ? "threads" : "processes", what);
    good = good && holds;
  };
  expect(seconds < kMostSeconds, "took longer than 60 s");
  // docs/reliability.md, "Many ranks": what a rank holds.
  const uint32_t hops = static_cast<uint32_t>(std::bit_width(nranks - 1));
  const uint64_t own = 8, control = threads ? 0 : 4 * hops;
  expect(all.made.descriptors <= nranks * (own + control), "a new communicator holds too many descriptors");
  const uint64_t edges = nranks - 1, by_barrier = all.barrier.descriptors - all.made.descriptors;
  expect(by_barrier >= 2 * edges, "the barrier connected nobody: were ranks connected when the communicator was made?");
  // Two ends of two descriptors; among threads one of the two is shared by all ends at a rank.
  const uint64_t by_tree = threads ? 2 * edges + nranks : 4 * edges;
  const uint64_t crossed = threads ? nranks / 4 : 2 * edges;  // second connections, not yet closed
  const uint64_t sleepers = nranks;                           // one of each thread that sleeps for the first time
  expect(by_barrier <= by_tree + crossed + sleepers, "a barrier by trees connected more than the edges of a tree");
  return good;
}

}  // namespace
}  // namespace limits

int main(int argc, char** argv) {
  bool good = argc > 1;
  for (int i = 1; i < argc; i += 2) {
    const std::string kind = argv[i];
    const int nranks = i + 1 < argc ? std::atoi(argv[i + 1]) : 0;
    if ((kind != "--threads" && kind != "--processes") || nranks < 2) {
      std::fprintf(stderr, "usage: limits [--threads N]... [--processes N]...   (N at least 2)\n");
      return 2;
    }
    good = limits::run(kind == "--threads", static_cast<uint32_t>(nranks)) && good;
  }
  return good ? 0 : 1;
}
