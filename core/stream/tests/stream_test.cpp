// SPDX-License-Identifier: Apache-2.0
//
// Collectives on device memory with ranks as threads of one process, whose streams share one hardware queue.
#include "../../tests/harness/sanitized.hpp"
#include "../../tests/harness/stream_ranks.hpp"
#include "../../tests/harness/virtual_time/virtual_time.hpp"

namespace tutti::test {
namespace {

TEST(Stream, ThreadsOfAProcessShareAQueue) {
  for (const uint32_t n : {1u, 2u, 3u, 5u, 8u})
    run_threads(n, [](tutti_comm* comm, uint32_t rank) {
      for (const uint64_t count : {1u, 7u, 1000u, 20000u}) check_all(comm, rank, count, nullptr);
    });
}

TEST(Stream, SixteenRanksOnOneDevice) {
  run_threads(16, [](tutti_comm* comm, uint32_t rank) { check_all(comm, rank, 100, nullptr); });
}

TEST(Stream, EveryAlgorithm) {
  for (const tutti_algorithm* algorithm : thinned(tutti::list_algorithms())) {
    const std::string filter = only(*algorithm);
    for (const uint32_t n : {3u, 4u}) {
      if (!serves(*algorithm, n)) continue;
      SCOPED_TRACE(filter);
      run_threads(
          n, [](tutti_comm* comm, uint32_t rank) { check_all(comm, rank, 1003, nullptr); }, filter);
    }
  }
}

// Any bit pattern, of every type and operator: what the device's streams give is what the host's kernels give.
TEST(Stream, SameBitsAsTheHost) {
  run_threads(
      3,
      [](tutti_comm* comm, uint32_t rank) {
        constexpr uint64_t count = 1777;
        Stream s;
        tutti_options options{};
        options.struct_size = sizeof options;
        options.stream = s.handle;
        for (const uint32_t dtype : all_dtypes())
          for (const uint32_t op : all_ops()) {
            if (!op_is_defined(op, dtype)) continue;
            const uint64_t bytes = count * dtype_bytes(dtype);
            auto *in = s.make<uint8_t>(bytes), *out = s.make<uint8_t>(bytes);
            std::vector<uint8_t> host_in(bytes), host_out(bytes);
            uint64_t random = dtype * 100 + op * 10 + rank + 1;
            for (uint64_t i = 0; i < bytes; ++i)
              in[i] = host_in[i] =
                  static_cast<uint8_t>((random = random * 6364136223846793005u + 1442695040888963407u) >> 56);
            ASSERT_EQ(tutti_all_reduce(comm, in, out, count, dtype, op, &options, nullptr), TUTTI_OK)
                << tutti_comm_error(comm);
            ASSERT_EQ(tutti_all_reduce(comm, host_in.data(), host_out.data(), count, dtype, op, nullptr, nullptr),
                      TUTTI_OK)
                << tutti_comm_error(comm);
            ASSERT_TRUE(s.finish());
            ASSERT_EQ(std::memcmp(out, host_out.data(), bytes), 0) << dtype_name(dtype) << " " << op_name(op);
            s.free(in);
            s.free(out);
          }
      },
      "all_reduce:ring");
}

TEST(Stream, RequestsTellWhenTheDeviceIsDone) {
  run_threads(2, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    auto* data = s.make<float>(5000);
    for (int i = 0; i < 5000; ++i) data[i] = static_cast<float>(rank + 1);
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = s.handle;
    tutti_request* request = nullptr;
    ASSERT_EQ(tutti_all_reduce(comm, data, data, 5000, TUTTI_FLOAT32, TUTTI_AVG, &options, &request), TUTTI_OK)
        << tutti_comm_error(comm);
    ASSERT_EQ(tutti_request_wait(request), TUTTI_OK) << tutti_request_error(request);
    tutti_request_free(request);
    for (int i = 0; i < 5000; ++i) ASSERT_EQ(data[i], 1.5f);
    s.free(data);
  });
}

// Whatever the stream waits for, a call that needs nothing new returns.
TEST(Stream, CallsReturnWhileTheStreamIsHeldUp) {
  const OnDevices each;
  run_threads(
      2,
      [](tutti_comm* comm, uint32_t rank) {
        const tutti::DeviceTables tables = device();
        Stream s(rank);
        alignas(64) uint32_t flag = 0;
        void* seen = nullptr;
        ASSERT_EQ(tables.memory->map_host(nullptr, &flag, sizeof flag, &seen), TUTTI_OK);
        tutti_options options{};
        options.struct_size = sizeof options;
        options.stream = s.handle;
        auto* data = s.make<int64_t>(1000);
        std::fill_n(data, 1000, 1);
        const auto reduce = [&](uint64_t count) {
          return tutti_all_reduce(comm, data, data, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr);
        };
        EXPECT_EQ(reduce(1000), TUTTI_OK) << tutti_comm_error(comm);
        ASSERT_TRUE(s.finish());
        tutti_command wait{};
        wait.kind = TUTTI_COMMAND_WAIT;
        wait.flag = static_cast<uint32_t*>(seen);
        wait.value = 1;
        ASSERT_EQ(tables.executor->enqueue(nullptr, s.handle, &wait, 1), TUTTI_OK);
        for (const uint64_t count : {900u, 800u, 700u}) EXPECT_EQ(reduce(count), TUTTI_OK) << tutti_comm_error(comm);
        EXPECT_EQ(data[0], 2) << "it was to wait";
        std::atomic_ref(flag).store(1);
        ASSERT_TRUE(s.finish());
        EXPECT_EQ(data[0], 16);
        EXPECT_EQ(data[750], 8);
        EXPECT_EQ(data[950], 2);
        s.free(data);
        ASSERT_EQ(tables.memory->unmap_host(nullptr, &flag), TUTTI_OK);
      },
      "all_reduce:ring");
}

// The progress thread ends the communicator while its owner comes with the first call on device memory.
TEST(Stream, TheFirstCallComesBesideALoss) {
  run_threads(
      2,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        auto* data = s.make<float>(10);
        const tutti_options options = on(s);
        if (rank == 1) {
          EXPECT_EQ(tutti_comm_abort(comm, "enough"), TUTTI_OK);
        } else {
          std::this_thread::sleep_for(std::chrono::milliseconds(300));
          EXPECT_EQ(tutti_all_reduce(comm, data, data, 10, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr), TUTTI_ABORTED);
          EXPECT_NE(std::string(tutti_comm_error(comm)).find("enough"), std::string::npos) << tutti_comm_error(comm);
        }
        s.free(data);
      },
      "", 60, TUTTI_COMM_PROGRESS_THREAD);
}

// A call that is wrong in itself tells what broke the communicator, too: the same words at any time, also while the
// device does not come to its end.
TEST(Stream, WhatBrokeTheCommunicatorIsToldInOneWay) {
  const VirtualTime time;
  run_threads(1, [&time](tutti_comm* comm, uint32_t) {
    Stream s;
    Gate gate;
    auto* data = s.make<float>(10);
    const tutti_options options = on(s);
    const auto reduce = [&] {
      return tutti_all_reduce(comm, data, data, 10, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
    };
    ASSERT_EQ(reduce(), TUTTI_OK) << "the first call may wait for the device";
    gate.hold(s);
    ASSERT_EQ(reduce(), TUTTI_OK);
    std::thread aborting([comm] { EXPECT_EQ(tutti_comm_abort(comm, "enough"), TUTTI_OK); });
    std::string first;
    const auto limit = time.passed() + std::chrono::seconds(7);
    while (time.passed() < limit && !testing::Test::HasFailure()) {
      EXPECT_EQ(tutti_all_reduce(comm, nullptr, data, 10, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr),
                TUTTI_INVALID_ARGUMENT);
      const std::string text = tutti_comm_error(comm);
      const size_t at = text.find("was broken before");
      if (at == text.npos) continue;
      if (first.empty()) first = text.substr(at);
      EXPECT_EQ(text.substr(at), first);
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_NE(first.find("untouched"), first.npos) << first;
    aborting.join();
    gate.open();
    EXPECT_TRUE(s.finish());
    s.free(data);
  });
}

TEST(Stream, WrongMemoryIsNamed) {
  run_threads(2, [](tutti_comm* comm, uint32_t) {
    Stream s;
    Stream other(1);
    auto* ours = s.make<float>(10);
    auto* theirs = other.make<float>(10);
    float host[10] = {};
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = s.handle;
    const auto refused = [&](const void* in, void* out, void* stream, const char* words) {
      options.stream = stream;
      EXPECT_LT(tutti_all_reduce(comm, in, out, 10, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr), 0);
      EXPECT_NE(std::string(tutti_comm_error(comm)).find(words), std::string::npos) << tutti_comm_error(comm);
    };
    refused(ours, host, s.handle, "both have to be on one");
    refused(ours, theirs, s.handle, "both have to be on one");
    refused(host, host, s.handle, "host memory");
    refused(theirs, theirs, other.handle, " 1, but this communicator was bound to device ");
    s.free(ours);
    refused(ours, ours, s.handle, "released");
    EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_OK) << "nothing was issued";
    other.free(theirs);
  });
}

TEST(Stream, OtherCallsOfTheSameProcessAreNamed) {
  run_threads(2, [](tutti_comm* comm, uint32_t rank) {
    Stream s;
    auto* data = s.make<float>(10);
    tutti_options options{};
    options.struct_size = sizeof options;
    options.stream = s.handle;
    const tutti_status status =
        tutti_all_reduce(comm, data, data, rank ? 10 : 9, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr);
    EXPECT_LT(status, 0);
    const std::string text = tutti_comm_error(comm);
    EXPECT_NE(text.find("9 x float32"), std::string::npos) << text;
    EXPECT_NE(text.find("10 x float32"), std::string::npos) << text;
  });
}

TEST(Stream, ARankThatDoesNotComeEndsTheOthersByDeadline) {
  const VirtualTime time;
  run_threads(
      2,
      [&time](tutti_comm* comm, uint32_t rank) {
        tutti_options options{};
        options.struct_size = sizeof options;
        if (rank == 1) {  // looks around, but waits for something else
          options.timeout_ns = 3'600'000'000'000;
          float x = 0;
          tutti_request* request = nullptr;
          ASSERT_EQ(tutti_receive(comm, &x, 1, TUTTI_FLOAT32, 0, 5, &options, &request), TUTTI_OK);
          while (tutti_request_test(request) == TUTTI_AGAIN) std::this_thread::sleep_for(std::chrono::milliseconds(20));
          tutti_request_free(request);
          return;
        }
        Stream s;
        auto* data = s.make<float>(10);
        options.stream = s.handle;
        const auto begin = time.passed();
        EXPECT_EQ(tutti_all_reduce(comm, data, data, 10, TUTTI_FLOAT32, TUTTI_SUM, &options, nullptr), TUTTI_TIMEOUT);
        // The deadline of this call, and not that of the receive.
        EXPECT_GE(time.passed() - begin, std::chrono::seconds(600));
        EXPECT_LT(time.passed() - begin, late(std::chrono::seconds(600)));
        for (const char* words :
             {"has waited 600.0 s (the default of TUTTI_TIMEOUT) in", "on device memory for rank 1 of its process"})
          EXPECT_NE(std::string(tutti_comm_error(comm)).find(words), std::string::npos) << tutti_comm_error(comm);
      },
      "", default_timeout_s);
}

// A rank of the same process comes later than the deadline, while an earlier call is behind work of the application:
// its thread may itself wait until nothing is pending on the device.
TEST(Stream, NoDeadlineBehindTheApplicationsWork) {
  const VirtualTime time;
  Gate gate;
  run_threads(
      2,
      [&gate](tutti_comm* comm, uint32_t rank) {
        Stream s;
        auto* data = s.make<int64_t>(10);
        std::fill_n(data, 10, 1);
        const tutti_options options = on(s);
        const auto reduce = [&] {
          ASSERT_EQ(tutti_all_reduce(comm, data, data, 10, TUTTI_INT64, TUTTI_SUM, &options, nullptr), TUTTI_OK)
              << tutti_comm_error(comm);
        };
        reduce();
        ASSERT_TRUE(s.finish());
        // Streams may share a queue of the device: none is held up before all have finished.
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK);
        gate.hold(s);
        reduce();
        if (rank == 1) {
          std::this_thread::sleep_for(std::chrono::seconds(900));
          gate.open();
        }
        reduce();
        ASSERT_TRUE(s.finish());
        EXPECT_EQ(data[9], 8);
        s.free(data);
      },
      "", default_timeout_s);
  EXPECT_GE(time.passed(), std::chrono::seconds(900));
  EXPECT_LT(time.passed(), late(std::chrono::seconds(900)));
}

}  // namespace
}  // namespace tutti::test
