// SPDX-License-Identifier: Apache-2.0
//
// Collectives whose buffers lie in windows: ranks that come late, stay away, die or call something else.
#include <signal.h>
#include <sys/mman.h>

#include <array>
#include <atomic>

#include "../../bootstrap/tests/in_time.hpp"
#include "../../tests/harness/patience.hpp"
#include "../../tests/harness/window_data.hpp"

namespace tutti::test {
namespace {

// The application's earlier commands in the stream may take as long as they like, also where the call waits for it.
TEST(WindowCalls, RealTimeNoDeadlineForTheApplicationsWork) {
  const Patience patience;
  run_processes(
      2, 1,
      [patience](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data in(comm, s, mib), out(comm, s, mib);
        // Before the stream is held up: an allocation may wait for it.
        Data fresh(comm, s, mib, false);
        reduce_once(comm, rank, s, in, out);
        auto* small = s.make<int64_t>(1);
        const auto reduce_small = [&] {
          const tutti_options options = on(s);
          ASSERT_EQ(tutti_all_reduce(comm, small, small, 1, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
              << tutti_comm_error(comm);
        };
        reduce_small();
        ASSERT_TRUE(s.finish());
        void* seen = nullptr;
        std::vector<uint32_t> flag(1024);
        ASSERT_EQ(device().memory->map_host(nullptr, flag.data(), 4096, &seen), TUTTI_OK);
        tutti_command wait{};
        wait.kind = TUTTI_COMMAND_WAIT;
        wait.flag = static_cast<uint32_t*>(seen);
        wait.value = 1;
        if (rank == 0) {
          ASSERT_EQ(device().executor->enqueue(nullptr, s.handle, &wait, 1), TUTTI_OK);
        }
        reduce_small();
        std::thread application([&] {
          std::this_thread::sleep_for(patience.held_up);
          std::atomic_ref(flag[0]).store(1);
        });
        tutti_window_options window{};
        window.struct_size = sizeof window;
        window.timeout_ns = rank == 0 ? patience.deadline_ns : 0;
        // Registering waits until nothing is pending.
        EXPECT_EQ(tutti_comm_register(comm, fresh.device, fresh.bytes(), &window, &fresh.window), TUTTI_OK)
            << tutti_comm_error(comm);
        const tutti_options options = on(s, rank == 0 ? patience.deadline_ns : 0);
        EXPECT_EQ(tutti_all_reduce(comm, fresh.device, out.device, mib, TUTTI_INT64, TUTTI_SUM, &options, nullptr),
                  TUTTI_OK)
            << tutti_comm_error(comm);
        application.join();
        ASSERT_TRUE(s.finish());
        EXPECT_EQ(served(comm), "simulated+window");
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        EXPECT_EQ(device().memory->unmap_host(nullptr, flag.data()), TUTTI_OK);
        s.free(small);
      },
      "all_reduce:ring", hide_memory);
}

// The call returns; the deadline names who stays away.
TEST(WindowCalls, RealTimeARankThatStaysAwayIsNamed) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        Data in(comm, s, mib), out(comm, s, mib);
        reduce_once(comm, rank, s, in, out);
        tutti_options options = on(s);
        options.timeout_ns = 1'000'000'000;
        const InTime deadline;
        if (rank == 0) {
          EXPECT_EQ(tutti_all_reduce(comm, in.device, out.device, mib, TUTTI_INT64, TUTTI_SUM, &options, nullptr),
                    TUTTI_OK)
              << tutti_comm_error(comm);
        }
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_TIMEOUT);
        EXPECT_TRUE(s.finish());
        if (rank == 0) {
          EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_TIMEOUT);
          const std::string text = tutti_comm_error(comm);
          EXPECT_NE(text.find("rank 1 has not entered operation #1: its last was #0, all_reduce(131072 x int64, sum)"),
                    text.npos)
              << text;
        }
      },
      "", hide_memory);
}

// A rank whose stream does not come to the call, since it waits for `flag`, keeps its peers' streams waiting: `then`
// ends it.
void in_the_middle(const std::function<void(tutti_comm*, std::atomic_ref<uint32_t> flag)>& then,
                   const std::string& told, tutti_status expected) {
  char folder[] = "/tmp/tutti-window-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string where = std::string("file:") + folder;
  hide_memory();
  const pid_t ends = fork();
  if (ends == 0) {
    tutti_comm* comm = make_comm(where, 1, 2, "");
    Stream s;
    Data in(comm, s, mib), out(comm, s, mib);
    reduce_once(comm, 1, s, in, out);
    void* seen = nullptr;
    std::vector<uint32_t> flag(1024);
    EXPECT_EQ(device().memory->map_host(nullptr, flag.data(), 4096, &seen), TUTTI_OK);
    tutti_command wait{};
    wait.kind = TUTTI_COMMAND_WAIT;
    wait.flag = static_cast<uint32_t*>(seen);
    wait.value = 1;
    EXPECT_EQ(device().executor->enqueue(nullptr, s.handle, &wait, 1), TUTTI_OK);
    const tutti_options options = on(s);
    EXPECT_EQ(tutti_all_reduce(comm, in.device, out.device, mib, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
        << tutti_comm_error(comm);
    then(comm, std::atomic_ref(flag[0]));
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  const pid_t survives = fork();
  if (survives == 0) {
    tutti_comm* comm = make_comm(where, 0, 2, "");
    {
      Stream s;
      Data in(comm, s, mib), out(comm, s, mib);
      reduce_once(comm, 0, s, in, out);
      const tutti_options options = on(s);
      const tutti_status status =
          tutti_all_reduce(comm, in.device, out.device, mib, TUTTI_INT64, TUTTI_SUM, &options, nullptr);
      EXPECT_TRUE(status == TUTTI_OK || status == expected) << tutti_comm_error(comm);
      EXPECT_TRUE(s.finish()) << "the stream still waits";
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
      EXPECT_EQ(tutti_comm_async_error(comm), expected);
      EXPECT_LT(tutti_barrier(comm, nullptr, nullptr), 0);
      EXPECT_NE(std::string(tutti_comm_error(comm)).find(told), std::string::npos) << tutti_comm_error(comm);
      // The buffers are given back: the other's process is gone, or its streams were let go.
    }
    tutti_comm_destroy(comm);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  waitpid(survives, &status, 0);
  EXPECT_EQ(status, 0);
  waitpid(ends, &status, 0);
  EXPECT_TRUE(status == 0 || (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL)) << status;
  std::filesystem::remove_all(folder);
}

TEST(WindowCalls, AKilledRankDoesNotHoldUpTheStream) {
  in_the_middle([](tutti_comm*, std::atomic_ref<uint32_t>) { raise(SIGKILL); }, "rank 1", TUTTI_PEER_FAILED);
}

TEST(WindowCalls, AnAbortLetsStreamsGo) {
  in_the_middle(
      [](tutti_comm* comm, std::atomic_ref<uint32_t> flag) {
        std::thread application([&] {
          std::this_thread::sleep_for(std::chrono::milliseconds(100));
          flag.store(1);
        });
        tutti_comm_abort(comm, "changed its mind");
        application.join();
      },
      "changed its mind", TUTTI_ABORTED);
}

// One rank's host comes to a call of a known shape after the others' calls have returned, in windows and through slots.
TEST(WindowCalls, NobodyWaitsForALateHost) {
  constexpr uint32_t rounds = 6;
  using Returned = std::array<std::atomic<uint32_t>, rounds>;  // calls of each round
  void* const shared = mmap(nullptr, sizeof(Returned), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(shared, MAP_FAILED);
  for (const bool registered : {true, false}) {
    Returned& returned = *new (shared) Returned{};
    run_processes(
        3, 1,
        [&returned, registered](tutti_comm* comm, uint32_t rank) {
          Stream s;
          Data in(comm, s, 4 * mib, registered), out(comm, s, 4 * mib, registered);
          reduce_once(comm, rank, s, in, out);
          EXPECT_EQ(served(comm), registered ? "simulated+window" : "simulated+mapped");
          const tutti_options options = on(s);
          for (uint32_t round = 0; round < rounds; ++round) {
            for (uint64_t i = 0; i < in.host.size(); ++i) in.host[i] = value(rank, i) + round;
            in.up();
            ASSERT_TRUE(s.finish());
            ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
            const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
            while (rank == round % 3 && returned[round] < 2) {
              ASSERT_LT(std::chrono::steady_clock::now(), limit) << "the others' calls wait for this one";
              std::this_thread::sleep_for(std::chrono::milliseconds(1));
            }
            ASSERT_EQ(tutti_all_reduce(comm, in.device, out.device, in.host.size(), TUTTI_INT64, TUTTI_SUM, &options,
                                       nullptr),
                      TUTTI_OK)
                << tutti_comm_error(comm);
            ++returned[round];
            out.down();
            ASSERT_TRUE(s.finish());
            for (uint64_t i = 0; i < out.host.size(); ++i) ASSERT_EQ(out.host[i], sum_of(3, i) + 3 * round) << i;
          }
        },
        "", hide_memory);
  }
  munmap(shared, sizeof(Returned));
}

// Buffers that lie elsewhere on one rank break the rule: checked mode says so, and so does the first call of a shape.
TEST(WindowCalls, OtherPlacesAreAMismatch) {
  for (const uint32_t flags : {uint32_t{TUTTI_COMM_CHECK_CALLS}, 0u}) {
    char folder[] = "/tmp/tutti-window-test-XXXXXX";
    ASSERT_NE(mkdtemp(folder), nullptr);
    std::vector<pid_t> children;
    for (uint32_t rank = 0; rank < 2; ++rank) {
      const pid_t child = fork();
      if (child == 0) {
        hide_memory();
        tutti_comm* comm = make_comm(std::string("file:") + folder, rank, 2, "", 60, flags);
        Stream s;
        Data data(comm, s, 100);
        const tutti_options options = on(s);
        int64_t* const mine = data.device + rank;
        EXPECT_EQ(tutti_all_reduce(comm, mine, mine, 50, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_MISMATCH);
        const std::string text = tutti_comm_error(comm);
        // Without the mode the ranks see it in their meeting, or by what they tell each other of first calls.
        const bool told = text.find("at the same places of the same windows") != text.npos;
        EXPECT_TRUE(told || (!flags && text.find("all ranks must make the same calls") != text.npos)) << text;
        std::_Exit(testing::Test::HasFailure() ? 1 : 0);
      }
      children.push_back(child);
    }
    for (const pid_t child : children) {
      int status = 0;
      waitpid(child, &status, 0);
      EXPECT_EQ(status, 0);
    }
    std::filesystem::remove_all(folder);
  }
}

}  // namespace
}  // namespace tutti::test
