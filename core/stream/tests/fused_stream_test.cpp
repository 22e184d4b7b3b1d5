// SPDX-License-Identifier: Apache-2.0
//
// Small collectives between processes on devices of their own go to the device in one launch each, and only those.
#include <signal.h>

#include "../../bootstrap/tests/in_time.hpp"
#include "../../tests/harness/aborted_call.hpp"
#include "../../tests/harness/simulated_counters.hpp"
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

uint64_t launches() { return counters().launches; }

// One all-reduce in place; how many launches it took.
uint64_t reduce_once(tutti_comm* comm, uint32_t rank, uint64_t count, uint32_t of) {
  Stream s(of);
  const tutti_options options = on(s);
  auto* data = s.make<int64_t>(count);
  std::fill_n(data, count, rank + 1);
  const uint64_t before = launches();
  EXPECT_EQ(tutti_all_reduce(comm, data, data, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
      << tutti_comm_error(comm);
  const uint64_t taken = launches() - before;
  EXPECT_TRUE(s.finish());
  const int64_t n = tutti_comm_nranks(comm);
  for (uint64_t i = 0; i < count; ++i)
    if (data[i] != n * (n + 1) / 2) {
      ADD_FAILURE() << "rank " << rank << ": element " << i << " is " << data[i];
      break;
    }
  s.free(data);
  return taken;
}

// Every rank on a device of its own, unless a test says otherwise.
void many_devices(uint32_t) { setenv("TUTTI_SIMULATED_DEVICES", "8", 1); }

void rooted(tutti_comm* comm, uint32_t rank) {
  const uint32_t n = tutti_comm_nranks(comm), root = n - 1;
  constexpr uint64_t count = 11;
  Stream s(rank);
  const tutti_options options = on(s);
  auto *in = s.make<int64_t>(count * n), *sum = s.make<int64_t>(count), *all = s.make<int64_t>(count * n),
       *part = s.make<int64_t>(count);
  for (uint64_t i = 0; i < count * n; ++i) in[i] = value(rank, i);
  const auto ok = [&](tutti_status status) { ASSERT_EQ(status, TUTTI_OK) << tutti_comm_error(comm); };
  ok(tutti_reduce(comm, in, sum, count, TUTTI_INT64, TUTTI_SUM, root, &options, nullptr));
  ok(tutti_gather(comm, in, all, count, TUTTI_INT64, root, &options, nullptr));
  ok(tutti_scatter(comm, in, part, count, TUTTI_INT64, root, &options, nullptr));
  ASSERT_TRUE(s.finish());
  for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(part[i], value(root, rank * count + i)) << "scatter at " << i;
  for (uint64_t i = 0; rank == root && i < count * n; ++i)
    ASSERT_EQ(all[i], value(static_cast<uint32_t>(i / count), i % count)) << "gather at " << i;
  for (uint64_t i = 0; rank == root && i < count; ++i) {
    int64_t expected = 0;
    for (uint32_t r = 0; r < n; ++r) expected += value(r, i);
    ASSERT_EQ(sum[i], expected) << "reduce at " << i;
  }
  for (void* buffer : {in, sum, all, part}) s.free(buffer);
}

TEST(FusedStream, EveryCollectiveIsOneLaunch) {
  const OnDevices each;
  for (const uint32_t n : {2u, 3u, 4u, 5u})
    run_processes(
        n, 1,
        [](tutti_comm* comm, uint32_t rank) {
          for (const uint64_t count : {uint64_t{1}, uint64_t{13}, uint64_t{100}}) {
            const uint64_t before = launches();
            check_all(comm, rank, count, nullptr, rank);
            EXPECT_EQ(launches() - before, calls_of_check_all) << "rank " << rank << " at " << count;
          }
          const uint64_t before = launches();
          rooted(comm, rank);
          EXPECT_EQ(launches() - before, 3u) << "rank " << rank;
          for (const uint32_t collective : {TUTTI_ALL_REDUCE, TUTTI_ALL_GATHER, TUTTI_REDUCE_SCATTER, TUTTI_ALL_TO_ALL,
                                            TUTTI_BROADCAST, TUTTI_BARRIER, TUTTI_REDUCE, TUTTI_GATHER, TUTTI_SCATTER})
            EXPECT_EQ(served(comm, collective), "simulated+mapped+fused") << "collective " << collective;
        },
        "", many_devices);
}

TEST(FusedStream, OtherAlgorithmsAreOneLaunchToo) {
  const OnDevices each;
  for (const char* algorithm : {"ring", "tree"})
    run_processes(
        4, 1,
        [](tutti_comm* comm, uint32_t rank) {
          EXPECT_EQ(reduce_once(comm, rank, 50, rank), 1u);
          EXPECT_EQ(reduce_once(comm, rank, 50, rank), 1u);
        },
        std::string("all_reduce:") + algorithm, many_devices);
}

// direct, in place, 2 ranks: sends, receives and reduces the two, 4 times the buffer. 64 KiB is what may be fused.
TEST(FusedStream, LargerOnesAreNotFused) {
  const OnDevices each;
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        EXPECT_EQ(reduce_once(comm, rank, 2048, rank), 1u);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped+fused");
        EXPECT_GT(reduce_once(comm, rank, 2049, rank), 1u);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        EXPECT_EQ(reduce_once(comm, rank, 2047, rank), 1u);
      },
      "all_reduce:direct", many_devices);
}

// Ranks 0 and 2 share a device and must not wait there; rank 1 may, and they work together.
TEST(FusedStream, WhoSharesADeviceDoesNotFuse) {
  const OnDevices each([](uint32_t rank) { return rank % 2; });
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        const uint32_t of = rank % 2;
        const uint64_t taken = reduce_once(comm, rank, 100, of);
        EXPECT_EQ(taken == 1, rank == 1) << "rank " << rank << ": " << taken;
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), rank == 1 ? "simulated+mapped+fused" : "simulated+mapped");
        for (const uint64_t count : {1, 70}) check_all(comm, rank, count, nullptr, of);
      },
      "", many_devices);
}

// One of two does not know where it is, does not want to, has a device that does not, or has no mapped channel.
TEST(FusedStream, WhereOneCannotTheOtherStillMay) {
  const OnDevices each;
  struct Reason {
    const char *setting, *value;
    bool zero_fuses, one_fuses;
  };
  for (const Reason& reason :
       {Reason{"TUTTI_SIMULATED_IDENTITIES", "0", false, false}, Reason{"TUTTI_FUSED", "0", true, false},
        Reason{"TUTTI_SIMULATED_FUSED", "3", true, false}, Reason{"TUTTI_SIMULATED_EXPORTS", "0", false, false}}) {
    SCOPED_TRACE(reason.setting);
    run_processes(
        2, 1,
        [&](tutti_comm* comm, uint32_t rank) {
          for (int round = 0; round < 3; ++round) {
            const uint64_t taken = reduce_once(comm, rank, 100, rank);
            EXPECT_EQ(taken == 1, rank == 0 ? reason.zero_fuses : reason.one_fuses) << "rank " << rank << ": " << taken;
            EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE).ends_with("+fused"), taken == 1);
          }
          check_all(comm, rank, 20, nullptr, rank);
        },
        "",
        [&](uint32_t rank) {
          many_devices(rank);
          if (rank == 1) setenv(reason.setting, reason.value, 1);
        });
  }
}

// Ranks that are threads of one process are ordered by events, which no launch can wait for.
TEST(FusedStream, ThreadsDoNotFuse) {
  const OnDevices each;
  run_processes(
      4, 2,
      [](tutti_comm* comm, uint32_t rank) {
        check_all(comm, rank, 10, nullptr, rank);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
      },
      "", many_devices);
}

// A launch waits for rank 0's own peer: it is let go, and the error says why.
void expect_let_go(tutti_comm* comm, Stream& s, tutti_status status, const char* words) {
  EXPECT_TRUE(s.finish()) << "the stream still waits";
  const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  EXPECT_EQ(tutti_comm_async_error(comm), status);
  EXPECT_LT(tutti_barrier(comm, nullptr, nullptr), 0);
  EXPECT_NE(std::string(tutti_comm_error(comm)).find(words), std::string::npos) << tutti_comm_error(comm);
}

// A launch that waits is ended by an abort; a call that the abort overtakes launches nothing.
TEST(FusedStream, AnAbortEndsALaunchThatWaits) {
  const OnDevices each;
  for (const AbortComes when : {AbortComes::after, AbortComes::before})
    run_processes(
        2, 1,
        [when](tutti_comm* comm, uint32_t rank) {
          EXPECT_EQ(reduce_once(comm, rank, 100, rank), 1u);
          const uint64_t before = launches();
          abort_beside_a_call(comm, rank, when, 100, rank);
          EXPECT_EQ(launches() - before, rank == 0 && when == AbortComes::after ? 1u : 0u);
        },
        "", many_devices);
}

TEST(FusedStream, RealTimeATimeoutEndsALaunchThatWaits) {
  const OnDevices each;
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        EXPECT_EQ(reduce_once(comm, rank, 100, rank), 1u);
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);  // all have done that much
        Stream s(rank);
        const tutti_options options = on(s, 300'000'000);
        auto* data = s.make<int64_t>(100);
        const InTime deadline;
        if (rank == 0) {
          EXPECT_EQ(tutti_all_reduce(comm, data, data, 100, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK);
        }
        expect_let_go(comm, s, TUTTI_TIMEOUT, "all_reduce");
        s.free(data);
      },
      "", many_devices);
}

// The launches of two wait for a third that is killed: both are let go and name it.
TEST(FusedStream, ADeathEndsLaunchesThatWait) {
  const OnDevices each;
  char folder[] = "/tmp/tutti-stream-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string where = std::string("file:") + folder;
  constexpr uint32_t n = 3, dies = 2;
  std::vector<pid_t> children;
  for (uint32_t rank = 0; rank < n; ++rank) {
    const pid_t child = fork();
    if (child == 0) {
      many_devices(rank);
      tutti_comm* comm = make_comm(where, rank, n, "all_reduce:direct");
      EXPECT_EQ(reduce_once(comm, rank, 100, rank), 1u);
      tutti_barrier(comm, nullptr, nullptr);  // all have done that much
      if (rank == dies) {
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
        kill(getpid(), SIGKILL);
      }
      {
        Stream s(rank);
        const tutti_options options = on(s);
        auto* data = s.make<int64_t>(100);
        tutti_all_reduce(comm, data, data, 100, TUTTI_INT64, TUTTI_SUM, &options, nullptr);
        expect_let_go(comm, s, TUTTI_PEER_FAILED, "rank 2");
        s.free(data);
      }
      tutti_comm_destroy(comm);
      std::_Exit(testing::Test::HasFailure() ? 1 : 0);
    }
    children.push_back(child);
  }
  for (uint32_t rank = 0; rank < n; ++rank) {
    int status = 0;
    waitpid(children[rank], &status, 0);
    if (rank == dies)
      EXPECT_TRUE(WIFSIGNALED(status));
    else
      EXPECT_EQ(status, 0) << "rank " << rank;
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::test
