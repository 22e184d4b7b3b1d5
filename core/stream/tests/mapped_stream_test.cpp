// SPDX-License-Identifier: Apache-2.0
//
// Collectives on device memory between processes that map each other's, and what happens where they cannot.
#include <map>

#include "../../tests/harness/aborted_call.hpp"
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

// One all-reduce of int64 on a stream of a device; the sum of rank + 1.
void sum_once(tutti_comm* comm, uint32_t rank, uint64_t count, uint32_t of = 0) {
  Stream s(of);
  tutti_options options{};
  options.struct_size = sizeof options;
  options.stream = s.handle;
  auto* data = s.make<int64_t>(count);
  std::fill_n(data, count, rank + 1);
  ASSERT_EQ(tutti_all_reduce(comm, data, data, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
      << tutti_comm_error(comm);
  ASSERT_TRUE(s.finish());
  const int64_t n = tutti_comm_nranks(comm);
  for (const uint64_t i : {uint64_t{0}, count / 2, count - 1}) ASSERT_EQ(data[i], n * (n + 1) / 2) << i;
  s.free(data);
}

TEST(MappedStream, CarriesEveryByteOfTheCall) {
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        constexpr uint64_t count = 300000;
        sum_once(comm, rank, count);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        const auto bytes = sent(comm);
        EXPECT_EQ(bytes.at("mapped"), count * sizeof(int64_t)) << "half of it twice";
        EXPECT_EQ(bytes.size(), 1u) << "nothing else carried anything";
      },
      "all_reduce:ring");
}

TEST(MappedStream, NamedTransportsCarryEverything) {
  setenv("TUTTI_TRANSPORT", "shm", 1);
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    sum_once(comm, rank, 1000);
    EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+shm");
    EXPECT_FALSE(sent(comm).contains("mapped"));
  });
  unsetenv("TUTTI_TRANSPORT");
}

// Another host, as far as anybody can tell: the same collective mixes both.
TEST(MappedStream, MixesWithOtherHosts) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        sum_once(comm, rank, 100000);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), rank == 2 ? "simulated+tcp" : "simulated+mapped+tcp");
        check_all(comm, rank, 5000, nullptr);
      },
      "all_reduce:ring", [](uint32_t rank) { setenv("TUTTI_HOST_ID", rank == 2 ? "elsewhere" : "here", 1); });
}

// Bytes are staged in one direction or both where one of two ranks cannot map, and the log says so.
TEST(MappedStream, RefusalsAreStaged) {
  const auto told = [](tutti_comm* comm, uint32_t rank, uint32_t of, const std::string& carriers, const char* words) {
    testing::internal::CaptureStderr();
    sum_once(comm, rank, 10000, of);
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), carriers);
    EXPECT_NE(log.find(words), std::string::npos) << log;
    EXPECT_NE(log.find("is not mapped"), std::string::npos) << log;
    check_all(comm, rank, 3000, nullptr);
  };
  {
    SCOPED_TRACE("rank 1 exports and maps nothing");
    run_processes(
        2, 1,
        [&](tutti_comm* comm, uint32_t rank) { told(comm, rank, 0, "simulated+shm", "TUTTI_SIMULATED_EXPORTS=0"); },
        "all_reduce:ring",
        [](uint32_t rank) {
          if (rank == 1) setenv("TUTTI_SIMULATED_EXPORTS", "0", 1);
        });
  }
  {
    SCOPED_TRACE("rank 1 maps nothing of another device");
    const OnDevices each;
    run_processes(
        2, 1,
        [&](tutti_comm* comm, uint32_t rank) {
          testing::internal::CaptureStderr();
          sum_once(comm, rank, 10000, rank);
          const std::string log = testing::internal::GetCapturedStderr();
          EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped+shm");
          EXPECT_NE(log.find("does not read device"), std::string::npos) << log;
        },
        "all_reduce:ring",
        [](uint32_t rank) {
          if (rank == 1) setenv("TUTTI_SIMULATED_PEERS", "0", 1);
        });
  }
}

// Memory that nobody but streams can touch is what most devices have: the host must not even look at it.
TEST(MappedStream, NobodyTouchesPrivateMemory) {
  run_processes(
      3, 1,
      [](tutti_comm* comm, uint32_t rank) {
        const tutti::DeviceTables tables = device();
        Stream s;
        constexpr uint64_t count = 100000;
        std::vector<int64_t> host(count, rank + 1);
        void* seen = nullptr;
        ASSERT_EQ(tables.memory->map_host(nullptr, host.data(), count * sizeof(int64_t), &seen), TUTTI_OK);
        auto* data = s.make<int64_t>(count);
        const auto copy = [&](void* to, const void* from) {
          tutti_command command{};
          command.kind = TUTTI_COMMAND_COPY;
          command.sources = 1;
          command.src = &from;
          command.dst = to;
          command.count = count * sizeof(int64_t);
          ASSERT_EQ(tables.executor->enqueue(nullptr, s.handle, &command, 1), TUTTI_OK);
        };
        tutti_options options{};
        options.struct_size = sizeof options;
        options.stream = s.handle;
        copy(data, seen);
        ASSERT_EQ(tutti_all_reduce(comm, data, data, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
            << tutti_comm_error(comm);
        copy(seen, data);
        ASSERT_TRUE(s.finish());
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        for (const int64_t value : host) ASSERT_EQ(value, 6);
        s.free(data);
        ASSERT_EQ(tables.memory->unmap_host(nullptr, host.data()), TUTTI_OK);
      },
      "", [](uint32_t) { setenv("TUTTI_SIMULATED_PRIVATE", "1", 1); });
}

// No address of a call outlives it: buffers are freed while the peer may still be busy with the call before, and others
// come at the same address.
TEST(MappedStream, BuffersComeAndGo) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    for (int round = 0; round < 30; ++round) sum_once(comm, rank, 40000 + static_cast<uint64_t>(round % 3) * 10000);
    EXPECT_EQ(sent(comm).size(), 1u);
  });
}

// Communicators come and go; their slots go with them. Were they kept the device would soon have no memory for others,
// and bytes would be staged.
TEST(MappedStream, SlotsAreGivenBack) {
  const std::string folder = "/tmp/tutti-stream-test-slots-" + std::to_string(getpid()) + "-";
  run_processes(
      2, 1,
      [&](tutti_comm*, uint32_t rank) {
        for (int round = 0; round < 6; ++round) {
          const std::string meeting = folder + std::to_string(round);
          std::filesystem::create_directories(meeting);
          tutti_comm* comm = make_comm("file:" + meeting, rank, 2, "all_reduce:ring");
          ASSERT_NE(comm, nullptr);
          sum_once(comm, rank, 1000);
          EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped") << "round " << round;
          EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_OK);
        }
      },
      "", [](uint32_t) { setenv("TUTTI_SIMULATED_MEMORY", "14000000", 1); });
  for (int round = 0; round < 6; ++round) std::filesystem::remove_all(folder + std::to_string(round));
}

// A rank that has ended maps nothing: its peers' memory for it is released with the communicator.
TEST(MappedStream, SlotsForTheDeadAreGivenBack) {
  static constexpr uint64_t memory = 14000000;
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        sum_once(comm, rank, 1000);
        EXPECT_EQ(served(comm, TUTTI_ALL_REDUCE), "simulated+mapped");
        char done = 0;  // rank 1 ends when rank 0 needs it no longer
        if (rank == 1) {
          EXPECT_EQ(tutti_receive(comm, &done, 1, TUTTI_INT8, 0, 0, nullptr, nullptr), TUTTI_OK)
              << tutti_comm_error(comm);
          std::_Exit(testing::Test::HasFailure() ? 1 : 0);
        }
        tutti_send(comm, &done, 1, TUTTI_INT8, 1, 0, nullptr, nullptr);
        const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(60);
        while (tutti_comm_async_error(comm) == TUTTI_OK && std::chrono::steady_clock::now() < limit)
          std::this_thread::sleep_for(std::chrono::milliseconds(5));
        EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_PEER_FAILED);
        void* all = nullptr;
        EXPECT_EQ(device().memory->allocate(nullptr, 0, memory, &all), TUTTI_OK) << tutti::take_plugin_error();
      },
      "", [](uint32_t) { setenv("TUTTI_SIMULATED_MEMORY", std::to_string(memory).c_str(), 1); });
}

// So are slots that a peer was offered and has not answered when the communicator broke.
TEST(MappedStream, SlotsThatNobodyMappedAreGivenBack) {
  static constexpr uint64_t memory = 14000000;
  run_processes(
      2, 1,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        auto* data = s.make<int64_t>(100);
        tutti_options options{};
        options.struct_size = sizeof options;
        options.stream = s.handle;
        const tutti_status status = rank == 0 ? tutti_send(comm, data, 100, TUTTI_INT64, 1, 7, &options, nullptr)
                                              : tutti_receive(comm, data, 100, TUTTI_INT64, 0, 8, &options, nullptr);
        EXPECT_EQ(status, TUTTI_MISMATCH) << tutti_comm_error(comm);
        EXPECT_TRUE(s.finish());
        s.free(data);
        EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_MISMATCH);
        void* all = nullptr;
        EXPECT_EQ(device().memory->allocate(nullptr, 0, memory, &all), TUTTI_OK) << tutti::take_plugin_error();
      },
      "", [](uint32_t) { setenv("TUTTI_SIMULATED_MEMORY", std::to_string(memory).c_str(), 1); });
}

// Streams wait for a rank that does not come, and then for one that gives up in the middle of it all: they are let go,
// and both know why.
TEST(MappedStream, AnAbortLetsStreamsGo) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    sum_once(comm, rank, 100000);
    abort_beside_a_call(comm, rank, AbortComes::after, 100000);
  });
}

TEST(MappedStream, AnAbortEndsACallThatItOvertakes) {
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    sum_once(comm, rank, 100000);
    abort_beside_a_call(comm, rank, AbortComes::before, 100000);
  });
  run_processes(2, 1, [](tutti_comm* comm, uint32_t rank) {
    abort_beside_a_call(comm, rank, AbortComes::during, 100000);
  });
}

}  // namespace
}  // namespace tutti::test
