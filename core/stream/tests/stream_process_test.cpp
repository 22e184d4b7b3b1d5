// SPDX-License-Identifier: Apache-2.0
//
// Collectives on device memory between processes: bytes go through the host and over the transports.
#include "../../bootstrap/tests/in_time.hpp"
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

TEST(Stream, ProcessesMeetThroughTheHost) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    for (const uint64_t count : {1u, 1000u, 300000u}) check_all(comm, rank, count, nullptr);
  });
  run_processes(3, 1, [](tutti_comm* comm, uint32_t rank) { check_all(comm, rank, 50000, nullptr); });
}

TEST(Stream, ThreadsAndProcessesMixed) {
  run_processes(4, 2, [](tutti_comm* comm, uint32_t rank) {
    for (const uint64_t count : {3u, 70000u}) check_all(comm, rank, count, nullptr);
  });
}

// A host collective waits for a rank whose stream still needs this one's bytes.
TEST(Stream, HostCallsAdvanceStreams) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = s.handle;
    auto* data = s.make<int64_t>(100000);
    for (int round = 0; round < 20; ++round) {
      std::fill_n(data, 100000, rank + 1);
      ASSERT_EQ(tutti_all_reduce(comm, data, data, 100000, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
          << tutti_comm_error(comm);
      if (rank == 1) {
        ASSERT_TRUE(s.finish());
      }
      ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
      ASSERT_TRUE(s.finish());
      ASSERT_EQ(data[99999], 3);
    }
    s.free(data);
  });
}

// A device's queue is finite, and whoever adds to a full one waits: that must never be the thread that the queue waits
// for.
TEST(Stream, QueuesNeverFillUp) {
  setenv("TUTTI_SIMULATED_DEPTH", "300", 1);
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = s.handle;
    // One call of far more commands than the queue takes.
    constexpr uint64_t large = 40u << 20;
    auto* data = s.make<uint8_t>(large);
    std::memset(data, static_cast<int>(rank + 1), large);
    ASSERT_EQ(tutti_all_reduce(comm, data, data, large, TUTTI_UINT8, TUTTI_SUM, &options, nullptr), TUTTI_OK)
        << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
    for (const uint64_t i : {uint64_t{0}, large / 2, large - 1}) ASSERT_EQ(data[i], 3) << i;
    // Many calls before the first of them can end.
    auto* small = s.make<int64_t>(1);
    *small = 1;
    for (int call = 0; call < 40; ++call)
      ASSERT_EQ(tutti_all_reduce(comm, small, small, 1, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
          << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
    ASSERT_EQ(*small, int64_t{1} << 40);
    for (int call = 0; call < 300; ++call)
      ASSERT_EQ(tutti_all_gather(comm, small, data, 1, TUTTI_INT64, &options, nullptr), TUTTI_OK)
          << tutti_comm_error(comm);
    ASSERT_TRUE(s.finish());
    s.free(data);
    s.free(small);
  });
  unsetenv("TUTTI_SIMULATED_DEPTH");
}

// Calls on device memory are counted and compared with all others of the communicator.
TEST(Stream, CheckedModeComparesCallsOnDevices) {
  setenv("TUTTI_CHECK", "1", 1);
  run_processes(3, 1, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    auto* data = s.make<float>(100);
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = s.handle;
    const auto reduce = [&](uint32_t op) {
      return tutti_all_reduce(comm, data, data, 100, TUTTI_FLOAT32, op, &options, nullptr);
    };
    EXPECT_EQ(reduce(TUTTI_SUM), TUTTI_OK) << tutti_comm_error(comm);
    EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
    EXPECT_EQ(reduce(rank == 2 ? TUTTI_MAX : TUTTI_SUM), TUTTI_MISMATCH);
    const std::string text = tutti_comm_error(comm);
    EXPECT_NE(text.find("rank 2 called all_reduce(100 x float32, max) as operation #2"), text.npos) << text;
    EXPECT_NE(text.find("rank 0 called all_reduce(100 x float32, sum)"), text.npos) << text;
    EXPECT_TRUE(s.finish());
  });
  unsetenv("TUTTI_CHECK");
}

// So is the kind of memory.
TEST(Stream, CheckedModeTellsDeviceMemoryFromTheHosts) {
  setenv("TUTTI_CHECK", "1", 1);
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    std::vector<float> host(100);
    float* data = rank == 0 ? host.data() : s.make<float>(100);
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = rank == 0 ? nullptr : s.handle;
    EXPECT_EQ(tutti_all_reduce(comm, data, data, 100, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr), TUTTI_MISMATCH);
    const std::string text = tutti_comm_error(comm);
    EXPECT_NE(text.find("do all ranks have their buffers on devices or all on the host"), text.npos) << text;
    EXPECT_TRUE(s.finish());
  });
  unsetenv("TUTTI_CHECK");
}

// Without checked mode: the first use of a plan is compared between processes too. Sizes are equal, so that only the
// comparison can find the difference.
TEST(Stream, FirstUsesAreComparedBetweenProcesses) {
  for (const char* transport : {"shm", "tcp"}) {
    setenv("TUTTI_TRANSPORT", transport, 1);
    run_processes(3, 1, [](tutti_comm* comm, uint32_t rank) {
      Stream s;
      auto* data = s.make<float>(100);
      tutti_options options{};
      options.struct_size = sizeof options;
      options.stream = s.handle;
      tutti_status status =
          tutti_all_reduce(comm, data, data, 100, TUTTI_FLOAT32, rank == 2 ? TUTTI_MAX : TUTTI_SUM, &options, nullptr);
      EXPECT_TRUE(s.finish());
      const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      while (status == TUTTI_OK && std::chrono::steady_clock::now() < limit)
        status = tutti_barrier(comm, nullptr, nullptr);
      EXPECT_EQ(status, TUTTI_MISMATCH);
      const std::string text = tutti_comm_error(comm);
      EXPECT_NE(text.find("called all_reduce(100 x float32, max)"), text.npos) << text;
      EXPECT_NE(text.find("called all_reduce(100 x float32, sum)"), text.npos) << text;
      EXPECT_NE(text.find("operation #0"), text.npos) << text;
    });
    unsetenv("TUTTI_TRANSPORT");
  }
}

TEST(Stream, RealTimeARankThatStaysAwayIsNamedWithItsLastCall) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    auto* data = s.make<float>(100);
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = s.handle;
    const auto reduce = [&] {
      return tutti_all_reduce(comm, data, data, 100, TUTTI_FLOAT32, TUTTI_MIN, &options, nullptr);
    };
    EXPECT_EQ(reduce(), TUTTI_OK) << tutti_comm_error(comm);
    EXPECT_TRUE(s.finish());
    options.timeout_ns = 1'000'000'000;
    const InTime deadline;
    if (rank == 0) {
      EXPECT_EQ(reduce(), TUTTI_OK) << tutti_comm_error(comm);
    }
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
    while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_TIMEOUT);
    const std::string text = tutti_comm_error(comm);
    if (rank == 0) {
      EXPECT_NE(text.find("rank 1 has not entered operation #1: its last was #0, all_reduce(100 x float32, min)"),
                text.npos)
          << text;
    }
    EXPECT_TRUE(s.finish());
  });
}

// One rank's device has no memory for what an operation needs: all ranks learn of it, and none waits for that rank.
TEST(Stream, ARankWithoutDeviceMemoryIsNamedByAll) {
  constexpr uint32_t poor = 2;
  run_processes(
      4, 1,
      [](tutti_comm* comm, uint32_t rank) {
        constexpr uint64_t count = 300000;
        if (rank == poor) setenv("TUTTI_SIMULATED_MEMORY", "4000000", 1);
        Stream s;
        auto* data = s.make<int64_t>(count);
        auto* out = rank == 0 ? s.make<int64_t>(count) : nullptr;
        tutti_options options{};
        options.struct_size = sizeof options;
        options.stream = s.handle;
        const tutti_status status = tutti_reduce(comm, data, out, count, TUTTI_INT64, TUTTI_SUM, 0, &options, nullptr);
        if (rank == poor) {
          EXPECT_EQ(status, TUTTI_NO_RESOURCES);
        }
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_NO_RESOURCES);
        EXPECT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_NO_RESOURCES);
        const std::string text = tutti_comm_error(comm);
        EXPECT_TRUE(text.starts_with("rank 2 failed: device simulated: no scratch of ")) << rank << ": " << text;
        EXPECT_TRUE(s.finish());
      },
      "reduce:tree");
}

// The stream waits for bytes of a rank that has died: it is let go, and the error names the rank.
TEST(Stream, ADeadRankDoesNotHoldUpTheStream) {
  char folder[] = "/tmp/tutti-stream-test-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string where = std::string("file:") + folder;
  const pid_t dies = fork();
  if (dies == 0) {
    make_comm(where, 1, 2, "");
    std::_Exit(0);
  }
  const pid_t survives = fork();
  if (survives == 0) {
    tutti_comm* comm = make_comm(where, 0, 2, "");
    {
      Stream s;
      auto* data = s.make<float>(1000);
      tutti_options options{};
      options.struct_size = sizeof options;
      options.stream = s.handle;
      tutti_all_reduce(comm, data, data, 1000, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
      EXPECT_TRUE(s.finish()) << "the stream still waits";
      for (int i = 0; i < 6000 && tutti_comm_async_error(comm) == TUTTI_OK; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_PEER_FAILED);
      EXPECT_LT(tutti_all_reduce(comm, data, data, 1000, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr), 0);
      EXPECT_NE(std::string(tutti_comm_error(comm)).find("rank 1"), std::string::npos) << tutti_comm_error(comm);
    }
    tutti_comm_destroy(comm);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  for (const pid_t child : {dies, survives}) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::test
