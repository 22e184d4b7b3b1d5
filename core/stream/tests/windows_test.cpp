// SPDX-License-Identifier: Apache-2.0
//
// Registering windows: what all ranks learn, and what goes wrong.
#include <signal.h>
#include <sys/mman.h>

#include <atomic>
#include <barrier>
#include <tutti/tutti.hpp>

#include "../../bootstrap/tests/in_time.hpp"
#include "../../tests/harness/window_data.hpp"

namespace tutti::test {
namespace {

tutti_window_options with(uint32_t flags, uint64_t timeout_ns = 0) {
  tutti_window_options options{};
  options.struct_size = sizeof options;
  options.flags = flags;
  options.timeout_ns = timeout_ns;
  return options;
}

tutti_window_facts facts_of(tutti_comm* comm, tutti_window* window) {
  tutti_window_facts facts{};
  facts.struct_size = sizeof facts;
  EXPECT_EQ(tutti_comm_window(comm, window, &facts), TUTTI_OK) << tutti_comm_error(comm);
  return facts;
}

void expect_error(tutti_comm* comm, tutti_status status, tutti_status expected, const std::string& text) {
  EXPECT_EQ(status, expected);
  EXPECT_NE(std::string(tutti_comm_error(comm)).find(text), std::string::npos) << tutti_comm_error(comm);
}

// The communicator works, with its window.
void expect_usable(tutti_comm* comm, uint32_t rank) {
  reduce_once(comm, rank, 1000);
  EXPECT_EQ(served(comm), "simulated+window");
}

TEST(Windows, FactsAreAlike) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data first(comm, s, 100 + rank - rank), second(comm, s, 7);
        const tutti_window_facts facts = facts_of(comm, second.window);
        EXPECT_EQ(facts.in_place, 1u);
        EXPECT_EQ(facts.address, second.device);
        EXPECT_EQ(facts.bytes, 56u);
        EXPECT_STREQ(facts.reason, "");
        EXPECT_EQ(facts.id, 2u);
        EXPECT_EQ(facts_of(comm, first.window).id, 1u);
      },
      "", hide_memory);
}

TEST(Windows, SizesThatDifferAreNamed) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        auto* data = s.make<int64_t>(1000);
        tutti_window* window = nullptr;
        expect_error(comm, tutti_comm_register(comm, data, rank == 2 ? 8000 : 4096, nullptr, &window), TUTTI_MISMATCH,
                     "rank 0 registers 4096 bytes of simulated memory, rank 2 8000 bytes of simulated memory");
        EXPECT_EQ(window, nullptr);
        std::vector<char> host(4096);
        expect_error(comm,
                     rank == 1 ? tutti_comm_register(comm, host.data(), 4096, nullptr, &window)
                               : tutti_comm_register(comm, data, 4096, nullptr, &window),
                     TUTTI_MISMATCH,
                     "rank 0 registers 4096 bytes of simulated memory, rank 1 4096 bytes of host memory");
        expect_usable(comm, rank);
        s.free(data);
      },
      "", hide_memory);
}

// One rank's mistake is everybody's answer, and the communicator goes on.
TEST(Windows, WrongRangesAreRefusedOnAllRanks) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        auto* data = s.make<int64_t>(1000);
        tutti_window *first = nullptr, *second = nullptr;
        const auto enlist = [&](void* address, uint64_t bytes, tutti_window** window) {
          return tutti_comm_register(comm, address, bytes, nullptr, window);
        };
        expect_error(comm, enlist(data, rank ? 8001 : 8000, &first), TUTTI_INVALID_ARGUMENT,
                     "rank 1: tutti_comm_register");
        expect_error(comm, enlist(data + 500, rank ? 4000 : 4001, &first), TUTTI_INVALID_ARGUMENT,
                     "their allocation on device simulated has 4000 from there on");
        expect_error(comm, enlist(data, 0, &first), TUTTI_INVALID_ARGUMENT, "at least one byte");
        expect_error(comm, enlist(nullptr, 8, &first), TUTTI_INVALID_ARGUMENT, "expected memory");
        EXPECT_EQ(tutti_comm_register(comm, data, 8, nullptr, nullptr), TUTTI_INVALID_ARGUMENT);
        ASSERT_EQ(enlist(data, 4000, &first), TUTTI_OK) << tutti_comm_error(comm);
        // Overlaps on rank 1 alone.
        expect_error(comm, enlist(data + (rank ? 499 : 500), 8, &second), TUTTI_INVALID_ARGUMENT,
                     "rank 1: tutti_comm_register: 8 bytes");
        expect_error(comm, enlist(data + (rank ? 499 : 500), 8, &second), TUTTI_INVALID_ARGUMENT, "overlap window 1");
        EXPECT_EQ(second, nullptr);
        ASSERT_EQ(enlist(data + 500, 4000, &second), TUTTI_OK) << tutti_comm_error(comm);
        EXPECT_EQ(tutti_comm_deregister(comm, first, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        EXPECT_EQ(tutti_comm_deregister(comm, second, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        tutti_window_options options = with(1u << 7);
        expect_error(comm, tutti_comm_register(comm, data, 8, &options, &first), TUTTI_NOT_SUPPORTED, "options.flags");
        EXPECT_EQ(tutti_mem_register(data, 8000, -1, 0), TUTTI_NOT_SUPPORTED) << "device memory has windows";
        s.free(data);
        expect_usable(comm, rank);
      },
      "", hide_memory);
}

TEST(Windows, WrongHandlesAreRefused) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data data(comm, s, 10);
        expect_error(comm, tutti_comm_deregister(comm, nullptr, nullptr), TUTTI_INVALID_ARGUMENT,
                     "is no window of this communicator");
        int other = 0;
        auto* wrong = reinterpret_cast<tutti_window*>(&other);
        EXPECT_EQ(tutti_comm_deregister(comm, wrong, nullptr), TUTTI_INVALID_ARGUMENT);
        tutti_window_facts facts{};
        facts.struct_size = sizeof facts;
        EXPECT_EQ(tutti_comm_window(comm, wrong, &facts), TUTTI_INVALID_ARGUMENT);
        tutti_window* old = data.window;
        data.delist();
        EXPECT_EQ(tutti_comm_deregister(comm, old, nullptr), TUTTI_INVALID_ARGUMENT) << "twice";
        expect_usable(comm, rank);
      },
      "", hide_memory);
}

// All ranks learn that one cannot export: the window is staged, or there is none.
TEST(Windows, MemoryThatCannotBeExported) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data in(comm, s, 1000), out(comm, s, 1000);
        const tutti_window_facts facts = facts_of(comm, in.window);
        EXPECT_EQ(facts.in_place, 0u);
        EXPECT_NE(std::string(facts.reason).find("rank 1: device simulated: "), std::string::npos) << facts.reason;
        const std::string log = logged([&] { reduce_once(comm, rank, s, in, out); });
        EXPECT_EQ(served(comm).find("window"), std::string::npos);
        EXPECT_NE(log.find("windows of all_reduce are not read in place: rank 1: device simulated: "),
                  std::string::npos)
            << log;
        auto* data = s.make<int64_t>(10);
        tutti_window* window = nullptr;
        const tutti_window_options demands = with(rank == 2 ? uint32_t{TUTTI_WINDOW_ZERO_COPY} : 0);
        expect_error(comm, tutti_comm_register(comm, data, 80, &demands, &window), TUTTI_NOT_SUPPORTED,
                     "TUTTI_WINDOW_ZERO_COPY, but rank 1: device simulated: ");
        EXPECT_EQ(window, nullptr);
        s.free(data);
      },
      "",
      [](uint32_t rank) {
        hide_and_log();
        if (rank == 1) setenv("TUTTI_SIMULATED_EXPORTS", "0", 1);
      });
}

TEST(Windows, ZeroCopyIsGranted) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t) {
        Stream s;
        Data data(comm, s, 10, false);
        const tutti_window_options demands = with(TUTTI_WINDOW_ZERO_COPY);
        EXPECT_EQ(tutti_comm_register(comm, data.device, data.bytes(), &demands, &data.window), TUTTI_OK)
            << tutti_comm_error(comm);
        EXPECT_EQ(facts_of(comm, data.window).in_place, 1u);
      },
      "", hide_memory);
}

// Rank 2 dies, or does not come to register a window within the time: the others name it.
void expect_named(bool dies, uint64_t timeout_ns) {
  // All processes see it.
  auto* const made = static_cast<std::atomic<uint32_t>*>(
      ::mmap(nullptr, sizeof(std::atomic<uint32_t>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(made), MAP_FAILED);
  run_processes(
      3, 1,
      [=](tutti_comm* comm, uint32_t rank) {
        ++*made;
        while (rank == 2 && *made < 3) std::this_thread::yield();  // a death before is one of creation
        Stream s;
        auto* data = s.make<int64_t>(10);
        tutti_window* window = nullptr;
        const tutti_status expected = dies ? TUTTI_PEER_FAILED : TUTTI_TIMEOUT;
        if (rank == 2) {
          if (dies) std::_Exit(0);
          const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
          while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
            std::this_thread::sleep_for(std::chrono::milliseconds(5));
        } else {
          const tutti_window_options options = with(0, timeout_ns);
          const tutti_status status = tutti_comm_register(comm, data, 80, &options, &window);
          EXPECT_LT(status, 0);
          EXPECT_EQ(window, nullptr);
          if (dies) {
            EXPECT_NE(std::string(tutti_comm_error(comm)).find("rank 2"), std::string::npos)
                << tutti_comm_error(comm);
          }
        }
        EXPECT_EQ(tutti_comm_async_error(comm), expected);
        s.free(data);
      },
      "", hide_memory);
  ::munmap(made, sizeof *made);
}
TEST(Windows, ARankThatDiesIsNamed) { expect_named(true, 60'000'000'000); }
TEST(Windows, RealTimeARankThatStaysAwayIsNamed) {
  const InTime deadline;
  expect_named(false, 1'000'000'000);
}

// Memory that was freed while it was registered, and other memory that came at its address, are told.
TEST(Windows, FreedMemoryIsTold) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        const tutti_options options = on(s);
        auto* data = s.make<int64_t>(mib);
        tutti_window* window = nullptr;
        ASSERT_EQ(tutti_comm_register(comm, data, mib * sizeof *data, nullptr, &window), TUTTI_OK);
        const auto reduce = [&] {
          return tutti_all_reduce(comm, data, data, mib, TUTTI_INT64, TUTTI_SUM, &options, nullptr);
        };
        ASSERT_EQ(reduce(), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        s.free(data);
        EXPECT_EQ(reduce(), TUTTI_INVALID_ARGUMENT);
        std::vector<void*> others;
        while (others.size() < 64 && (others.empty() || others.back() != data)) others.push_back(s.make<int64_t>(mib));
        if (others.back() == data) {
          expect_error(comm, reduce(), TUTTI_INVALID_ARGUMENT, "whose memory was freed while it was registered");
        }
        EXPECT_EQ(tutti_comm_deregister(comm, window, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        for (void* other : others) s.free(other);
        expect_usable(comm, rank);
      },
      "", hide_memory);
}

// Deregistering waits for what is pending, on all ranks.
TEST(Windows, DeregisteringWaitsForPendingCalls) {
  auto* const opened = static_cast<std::atomic<bool>*>(
      ::mmap(nullptr, sizeof(std::atomic<bool>), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(opened), MAP_FAILED);
  run_processes(
      2, 1,
      [opened](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Gate gate;
        Data in(comm, s, mib), out(comm, s, mib);
        reduce_once(comm, rank, s, in, out);
        const tutti_options options = on(s);
        if (rank == 1) gate.hold(s);
        ASSERT_EQ(tutti_all_reduce(comm, in.device, out.device, mib, TUTTI_INT64, TUTTI_SUM, &options, nullptr),
                  TUTTI_OK)
            << tutti_comm_error(comm);
        std::thread application([&] {
          if (rank == 0) return;
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          *opened = true;
          gate.open();
        });
        in.delist();
        EXPECT_TRUE(*opened);
        application.join();
        out.down();
        ASSERT_TRUE(s.finish());
        for (uint64_t i = 0; i < mib; ++i) ASSERT_EQ(out.host[i], sum_of(2, i)) << i;
      },
      "", hide_memory);
  ::munmap(opened, sizeof *opened);
}

// Ranks that are threads of one process read each other's memory anyway; a window is in place there, too.
TEST(Windows, OfThreads) {
  run_processes(3, 3, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    Data in(comm, s, 1000), out(comm, s, 1000);
    EXPECT_EQ(facts_of(comm, in.window).in_place, 1u);
    for (int call = 0; call < 3; ++call) reduce_once(comm, rank, s, in, out);
    EXPECT_EQ(served(comm), "simulated");
    in.delist();
    reduce_once(comm, rank, s, in, out);
  });
}

TEST(Windows, OfThreadsAndProcesses) {
  run_processes(
      5, 2,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        for (const uint64_t count : {uint64_t{1}, uint64_t{1000}, mib}) {
          Data in(comm, s, count), out(comm, s, count);
          for (int call = 0; call < 3; ++call) reduce_once(comm, rank, s, in, out);
          EXPECT_EQ(served(comm), "simulated+window");
        }
      },
      "", hide_memory);
}

// Two windows in one allocation, and windows of two communicators in the same memory.
TEST(Windows, ShareAnAllocation) {
  const std::string folder = "/tmp/tutti-windows-test-" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  run_processes(
      2, 1,
      [&](tutti_comm* comm, uint32_t rank) {
        tutti_comm* other = make_comm("file:" + folder, rank, 2, "");
        ASSERT_NE(other, nullptr);
        {
          Stream s;
          Data all(comm, s, 200, false);
          tutti_window* windows[3] = {};
          ASSERT_EQ(tutti_comm_register(comm, all.device, 800, nullptr, &windows[0]), TUTTI_OK);
          ASSERT_EQ(tutti_comm_register(comm, all.device + 100, 800, nullptr, &windows[1]), TUTTI_OK);
          ASSERT_EQ(tutti_comm_register(other, all.device, 1600, nullptr, &windows[2]), TUTTI_OK);
          const auto reduce = [&](tutti_comm* by) {
            const tutti_options options = on(s);
            for (uint64_t i = 0; i < 200; ++i) all.host[i] = value(rank, i);
            all.up();
            ASSERT_EQ(
                tutti_all_reduce(by, all.device, all.device + 100, 100, TUTTI_INT64, TUTTI_SUM, &options, nullptr),
                TUTTI_OK)
                << tutti_comm_error(by);
            all.down();
            ASSERT_TRUE(s.finish());
            for (uint64_t i = 0; i < 100; ++i) ASSERT_EQ(all.host[100 + i], sum_of(2, i));
            EXPECT_EQ(served(by), "simulated+window");
          };
          reduce(comm);
          reduce(other);
          EXPECT_EQ(tutti_comm_deregister(comm, windows[0], nullptr), TUTTI_OK);
          reduce(other);
          EXPECT_EQ(tutti_comm_deregister(other, windows[2], nullptr), TUTTI_OK);
          EXPECT_EQ(tutti_comm_deregister(other, windows[1], nullptr), TUTTI_INVALID_ARGUMENT) << "of the other";
          EXPECT_EQ(tutti_comm_deregister(comm, windows[1], nullptr), TUTTI_OK);
        }
        EXPECT_EQ(tutti_comm_destroy(other), TUTTI_OK);
      },
      "", hide_memory);
  std::filesystem::remove_all(folder);
}

// Host memory: transports that register memory get it once. Results are right whatever they answer.
TEST(Windows, OfHostMemory) {
  for (const char* transport : {"shm", "tcp"})
    run_processes(
        3, 1,
        [transport](tutti_comm* comm, uint32_t rank) {
          constexpr uint64_t count = 100'000;
          std::vector<int64_t> ordinary(2 * count);
          void* shared = nullptr;
          ASSERT_EQ(tutti_mem_alloc(2 * count * sizeof(int64_t), &shared), TUTTI_OK);
          for (int64_t* data : {ordinary.data(), static_cast<int64_t*>(shared)}) {
            tutti_window* window = nullptr;
            ASSERT_EQ(tutti_comm_register(comm, data, 2 * count * sizeof *data, nullptr, &window), TUTTI_OK)
                << tutti_comm_error(comm);
            const tutti_window_facts facts = facts_of(comm, window);
            if (data == shared && std::string(transport) == "shm") {
              EXPECT_EQ(facts.in_place, 1u) << facts.reason;
            }
            if (!facts.in_place) {
              EXPECT_NE(std::string(facts.reason).find(transport), std::string::npos) << facts.reason;
            }
            for (int call = 0; call < 3; ++call) {
              for (uint64_t i = 0; i < count; ++i) data[i] = value(rank, i);
              ASSERT_EQ(tutti_all_reduce(comm, data, data + count, count, TUTTI_INT64, TUTTI_SUM, nullptr, nullptr),
                        TUTTI_OK)
                  << tutti_comm_error(comm);
              for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(data[count + i], sum_of(3, i)) << i;
            }
            EXPECT_EQ(tutti_comm_deregister(comm, window, nullptr), TUTTI_OK) << tutti_comm_error(comm);
            ASSERT_EQ(tutti_all_reduce(comm, data, data + count, count, TUTTI_INT64, TUTTI_SUM, nullptr, nullptr),
                      TUTTI_OK);
          }
          EXPECT_EQ(tutti_mem_free(shared), TUTTI_OK);
        },
        "", [transport](uint32_t) { setenv("TUTTI_TRANSPORT", transport, 1); });
}

TEST(Windows, OfTheCppFace) {
  const std::string folder = "/tmp/tutti-windows-test-" + std::to_string(getpid());
  std::filesystem::create_directories(folder);
  run_processes(
      2, 1,
      [&](tutti_comm*, uint32_t rank) {
        Stream s;
        auto* data = s.make<int64_t>(100);
        {
          const tutti::Communicator world("file:" + folder, rank, 2);
          tutti::Window window(world, std::span(data, 50));
          tutti::Window moved = std::move(window);
          EXPECT_EQ(window.handle(), nullptr);
          EXPECT_EQ(moved.facts().bytes, 400u);
          EXPECT_EQ(moved.facts().in_place, 1u);
          EXPECT_THROW(tutti::Window(world, std::span(data + 49, 2)), tutti::Error) << "overlaps";
          moved = tutti::Window();
          EXPECT_NO_THROW(tutti::Window(world, data, 800, TUTTI_WINDOW_ZERO_COPY));
        }
        s.free(data);
      },
      "", hide_memory);
  std::filesystem::remove_all(folder);
}

// Other calls than the others': both are named.
TEST(Windows, CallsThatDifferAreNamed) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data data(comm, s, 10);
        auto* more = s.make<int64_t>(10);
        tutti_window* window = nullptr;
        const tutti_status status = rank == 0 ? tutti_comm_register(comm, more, 80, nullptr, &window)
                                              : tutti_comm_deregister(comm, data.window, nullptr);
        expect_error(comm, status, TUTTI_MISMATCH, "tutti_comm_deregister of window 1");
        EXPECT_NE(std::string(tutti_comm_error(comm)).find("tutti_comm_register"), std::string::npos);
        s.free(more);
      },
      "", hide_memory);
}

}  // namespace
}  // namespace tutti::test
