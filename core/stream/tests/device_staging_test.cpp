// SPDX-License-Identifier: Apache-2.0
//
// Collectives on device memory over a transport that registers it (adapter.hpp): an adapter reads and writes slots in
// device memory, which the host cannot even look at here, and what happens where that cannot be.
#include <map>

#include "../../tests/harness/adapter.hpp"
#include "../../tests/harness/stream_ranks.hpp"

namespace tutti::test {
namespace {

constexpr const char* on_device = "simulated+adapter(device)";
constexpr const char* in_host = "simulated+adapter";

uint64_t sent_over_adapter(tutti_comm* comm) {
  uint64_t n = 0, bytes = 0;
  EXPECT_EQ(tutti_comm_traffic(comm, nullptr, &n), TUTTI_OK);
  std::vector<tutti_link_traffic> rows(n);
  EXPECT_EQ(tutti_comm_traffic(comm, rows.data(), &n), TUTTI_OK);
  for (const tutti_link_traffic& row : rows)
    if (std::string(row.transport) == "adapter") bytes += row.sent_bytes;
  return bytes;
}

// One all-reduce of numbers that differ everywhere. Streams alone touch the device's memory.
void reduce_once(tutti_comm* comm, uint32_t rank, uint64_t count) {
  const tutti::DeviceTables tables = device();
  Stream s;
  std::vector<int64_t> host(count);
  for (uint64_t i = 0; i < count; ++i) host[i] = value(rank, i);
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
  ASSERT_EQ(tables.memory->unmap_host(nullptr, host.data()), TUTTI_OK);
  const uint32_t n = tutti_comm_nranks(comm);
  for (uint64_t i = 0; i < count; ++i) {
    int64_t sum = 0;
    for (uint32_t r = 0; r < n; ++r) sum += value(r, i);
    ASSERT_EQ(host[i], sum) << "at " << i << " of " << count;
  }
  s.free(data);
}

// Ranks as processes that talk over the adapter alone.
void run_over_adapter(
    uint32_t n, const Body& body, const std::function<void(uint32_t)>& prepare = [](uint32_t) {}) {
  run_processes(n, 1, body, "all_reduce:ring", [&](uint32_t rank) {
    setenv("TUTTI_TRANSPORT", "adapter", 1);
    setenv("TUTTI_SIMULATED_PRIVATE", "1", 1);
    prepare(rank);
    adapter::load();
  });
}

// Counts that fill no slot, divide by nothing, and go round the slots more than once.
TEST(DeviceStaging, EveryByteGoesBetweenDevices) {
  for (const uint32_t n : {2u, 3u})
    run_over_adapter(n, [n](tutti_comm* comm, uint32_t rank) {
      uint64_t bytes = 0;
      for (const uint64_t count : {1u, 1001u, 1'500'007u}) {
        reduce_once(comm, rank, count);
        bytes += count * sizeof(int64_t);
        EXPECT_EQ(served(comm), on_device);
      }
      // The peer has what this rank sent: it has been counted.
      ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
      if (n == 2) {
        EXPECT_EQ(sent_over_adapter(comm), bytes) << "half of it twice";
      }
      EXPECT_GE(adapter::counters.device_bytes, sent_over_adapter(comm)) << "and what was received";
      EXPECT_EQ(adapter::counters.unregistered_bytes, 0u) << "something went through host memory";
      EXPECT_EQ(adapter::counters.host_region_bytes, 0u) << "something went through host memory";
      EXPECT_EQ(adapter::counters.flushes, 0u) << "it needs none";
    });
}

TEST(DeviceStaging, EveryCollective) {
  run_over_adapter(
      3, [](tutti_comm* comm, uint32_t rank) { check_all(comm, rank, 30'011, nullptr); },
      [](uint32_t) { unsetenv("TUTTI_SIMULATED_PRIVATE"); });
}

TEST(DeviceStaging, SendsAndReceives) {
  run_over_adapter(
      2,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        constexpr uint64_t count = 700'003;
        auto* data = s.make<int64_t>(count);
        tutti_options options{};
        options.struct_size = sizeof options;
        options.stream = s.handle;
        for (const uint32_t from : {0u, 1u}) {
          for (uint64_t i = 0; i < count; ++i) data[i] = rank == from ? value(rank, i) : -1;
          ASSERT_EQ(rank == from ? tutti_send(comm, data, count, TUTTI_INT64, 1 - rank, 7, &options, nullptr)
                                 : tutti_receive(comm, data, count, TUTTI_INT64, from, 7, &options, nullptr),
                    TUTTI_OK)
              << tutti_comm_error(comm);
          ASSERT_TRUE(s.finish());
          for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(data[i], value(from, i)) << "at " << i;
        }
        ASSERT_EQ(tutti_barrier(comm, nullptr, nullptr), TUTTI_OK) << tutti_comm_error(comm);
        EXPECT_EQ(adapter::counters.device_bytes, 2 * count * sizeof(int64_t));
        EXPECT_LT(adapter::counters.unregistered_bytes + adapter::counters.host_region_bytes, 4096u);
        EXPECT_GT(adapter::counters.flushes, 4u);
        s.free(data);
      },
      [](uint32_t) {
        unsetenv("TUTTI_SIMULATED_PRIVATE");
        adapter::settings.needs_flush = true;
      });
}

// Received bytes are elsewhere until the flush.
TEST(DeviceStaging, FlushesWhereTheTransportNeedsIt) {
  run_over_adapter(
      2,
      [](tutti_comm* comm, uint32_t rank) {
        for (const uint64_t count : {1u, 900'001u}) reduce_once(comm, rank, count);
        EXPECT_EQ(served(comm), on_device);
        EXPECT_GT(adapter::counters.flushes, 4u) << "slots came round";
      },
      [](uint32_t) { adapter::settings.needs_flush = true; });
}

TEST(DeviceStaging, AFailedFlushEndsTheCall) {
  run_over_adapter(
      2,
      [](tutti_comm* comm, uint32_t rank) {
        Stream s;
        auto* data = s.make<int64_t>(100'000);
        tutti_options options{};
        options.struct_size = sizeof options;
        options.stream = s.handle;
        tutti_all_reduce(comm, data, data, 100'000, TUTTI_INT64, TUTTI_SUM, &options, nullptr);
        EXPECT_TRUE(s.finish()) << "the stream still waits";
        for (int i = 0; i < 6000 && tutti_comm_async_error(comm) == TUTTI_OK; ++i)
          std::this_thread::sleep_for(std::chrono::milliseconds(10));
        EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_SYSTEM);
        EXPECT_LT(tutti_barrier(comm, nullptr, nullptr), 0);
        const std::string text = tutti_comm_error(comm);
        EXPECT_NE(text.find(rank == 1 ? "flush: adapter: the port is on fire" : "rank 1 failed"), text.npos) << text;
        s.free(data);
      },
      [](uint32_t rank) {
        adapter::settings.needs_flush = true;
        adapter::settings.flush_fails = rank == 1;
      });
}

// Each end chooses for itself.
TEST(DeviceStaging, OneEndMayBeInTheHost) {
  run_over_adapter(
      2,
      [](tutti_comm* comm, uint32_t rank) {
        testing::internal::CaptureStderr();
        for (const uint64_t count : {7u, 700'001u}) reduce_once(comm, rank, count);
        const std::string log = testing::internal::GetCapturedStderr();
        EXPECT_EQ(served(comm), rank == 1 ? in_host : on_device);
        const std::string why = "what adapter carries goes through host memory: adapter: this port registers no memory";
        const size_t said = log.find(why);
        EXPECT_EQ(said != log.npos, rank == 1) << log;
        EXPECT_EQ(log.find(why, said + 1), log.npos) << "once is enough: " << log;
        EXPECT_EQ(adapter::counters.unregistered_bytes, 0u) << "host slots are registered, too";
        EXPECT_EQ(rank == 1 ? adapter::counters.device_bytes : adapter::counters.host_region_bytes, 0u);
      },
      [](uint32_t rank) {
        setenv("TUTTI_LOG", "info", 1);
        adapter::settings.registers = rank != 1;
      });
}

TEST(DeviceStaging, WhatIsMissingIsSaid) {
  const struct {
    const char *variable, *value, *says;
  } cases[] = {{"TUTTI_SIMULATED_DMABUF", "0", "it makes no dma-bufs (TUTTI_SIMULATED_DMABUF=0)"},
               {"TUTTI_SIMULATED_MEMORY", "3000000", "no memory of 4194304 bytes"},
               {"TUTTI_TRANSPORT", "tcp", "tcp takes no memory of device simulated"},
               {"TUTTI_HOST_STAGING", "1", ""}};
  for (const auto& missing : cases) {
    SCOPED_TRACE(missing.variable);
    run_over_adapter(
        2,
        [&](tutti_comm* comm, uint32_t rank) {
          testing::internal::CaptureStderr();
          reduce_once(comm, rank, 1000);
          const std::string log = testing::internal::GetCapturedStderr();
          EXPECT_EQ(log.find("goes through host memory") != log.npos, *missing.says != 0) << log;
          EXPECT_NE(log.find(missing.says), log.npos) << log;
          EXPECT_EQ(served(comm), missing.value == std::string("tcp") ? "simulated+tcp" : in_host);
        },
        [&](uint32_t) {
          setenv("TUTTI_LOG", "info", 1);
          setenv(missing.variable, missing.value, 1);
        });
  }
}

// Two hosts, as far as anybody can tell: within one memory is mapped, between them an adapter carries it.
TEST(DeviceStaging, MixesWithMappedMemory) {
  run_over_adapter(
      3,
      [](tutti_comm* comm, uint32_t rank) {
        reduce_once(comm, rank, 200'003);
        EXPECT_EQ(served(comm), rank == 2 ? "simulated+adapter(device)" : "simulated+adapter(device)+mapped");
        EXPECT_EQ(adapter::counters.unregistered_bytes + adapter::counters.host_region_bytes, 0u);
      },
      [](uint32_t rank) {
        unsetenv("TUTTI_TRANSPORT");
        setenv("TUTTI_HOST_ID", rank == 2 ? "elsewhere" : "here", 1);
      });
}

size_t open_descriptors() {
  size_t n = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++n;
  return n;
}

// Regions, device memory and descriptors go with the communicator. Were memory kept the device would soon have none.
TEST(DeviceStaging, EverythingIsGivenBack) {
  const std::string folder = "/tmp/tutti-device-staging-" + std::to_string(getpid()) + "-";
  run_over_adapter(
      2,
      [&](tutti_comm*, uint32_t rank) {
        size_t before = 0;
        for (int round = 0; round < 4; ++round) {
          const std::string meeting = folder + std::to_string(round);
          std::filesystem::create_directories(meeting);
          tutti_comm* comm = make_comm("file:" + meeting, rank, 2, "all_reduce:ring");
          ASSERT_NE(comm, nullptr);
          reduce_once(comm, rank, 1001);
          EXPECT_EQ(served(comm), on_device) << "round " << round;
          EXPECT_EQ(adapter::counters.regions, 2u) << "a way there, a way back";
          EXPECT_EQ(tutti_comm_destroy(comm), TUTTI_OK);
          EXPECT_EQ(adapter::counters.regions, 0u);
          if (round == 1) before = open_descriptors();
        }
        // A thread that has slept keeps one descriptor for its sleeps. A leak in each round would be there twice.
        EXPECT_LE(open_descriptors(), before + 1);
      },
      [](uint32_t) { setenv("TUTTI_SIMULATED_MEMORY", "14000000", 1); });
  for (int round = 0; round < 4; ++round) std::filesystem::remove_all(folder + std::to_string(round));
}

// A rank ends in the middle of it all: the other's stream is let go, and nothing of it stays registered.
TEST(DeviceStaging, ADeadRankDoesNotHoldUpTheStream) {
  char folder[] = "/tmp/tutti-device-staging-XXXXXX";
  ASSERT_NE(mkdtemp(folder), nullptr);
  const std::string where = std::string("file:") + folder;
  int done[2];  // rank 0 has what it was to get: its peer may end
  ASSERT_EQ(pipe(done), 0);
  std::vector<pid_t> children;
  for (const uint32_t rank : {0u, 1u}) {
    children.push_back(fork());
    if (children.back()) continue;
    setenv("TUTTI_TRANSPORT", "adapter", 1);
    setenv("TUTTI_SIMULATED_PRIVATE", "1", 1);
    adapter::load();
    tutti_comm* comm = make_comm(where, rank, 2, "all_reduce:ring");
    reduce_once(comm, rank, 100'003);
    EXPECT_EQ(served(comm), on_device);
    char word = 0;
    if (rank == 1) {
      EXPECT_EQ(read(done[0], &word, 1), 1);
      std::_Exit(testing::Test::HasFailure() ? 1 : 0);
    }
    EXPECT_EQ(write(done[1], &word, 1), 1);
    {
      Stream s;
      constexpr uint64_t count = 5'000'001;  // more than all slots hold
      auto* data = s.make<int64_t>(count);
      tutti_options options{};
      options.struct_size = sizeof options;
      options.stream = s.handle;
      tutti_all_reduce(comm, data, data, count, TUTTI_INT64, TUTTI_SUM, &options, nullptr);
      EXPECT_TRUE(s.finish()) << "the stream still waits";
      for (int i = 0; i < 6000 && tutti_comm_async_error(comm) == TUTTI_OK; ++i)
        std::this_thread::sleep_for(std::chrono::milliseconds(10));
      EXPECT_EQ(tutti_comm_async_error(comm), TUTTI_PEER_FAILED);
      EXPECT_LT(tutti_barrier(comm, nullptr, nullptr), 0);
      EXPECT_NE(std::string(tutti_comm_error(comm)).find("rank 1"), std::string::npos) << tutti_comm_error(comm);
      s.free(data);
    }
    tutti_comm_destroy(comm);
    EXPECT_EQ(adapter::counters.regions, 0u);
    std::_Exit(testing::Test::HasFailure() ? 1 : 0);
  }
  for (const int end : done) close(end);
  for (const pid_t child : children) {
    int status = 0;
    waitpid(child, &status, 0);
    EXPECT_EQ(status, 0);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace tutti::test
